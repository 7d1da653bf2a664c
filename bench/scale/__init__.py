"""Measurements of the PostgreSQL store, compared with bare peers."""
