"""A laboratory of waiting: policies side by side, in virtual time, against a model of an API. `bide simulate`."""
