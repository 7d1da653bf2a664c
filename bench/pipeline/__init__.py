"""The speed and memory of normalization, compared with bare parsers."""
