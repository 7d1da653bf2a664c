"""Measurements of lists, search and statistics with many stored jobs."""
