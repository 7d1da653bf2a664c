"""Measurements of uploads."""
