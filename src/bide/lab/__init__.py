"""Simulates polling in virtual time: policies side by side, against a model of an API. Used by `bide simulate`."""
