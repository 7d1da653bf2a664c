"""Rows: downloaded files are read, converted, deduplicated, written and published as one file."""
