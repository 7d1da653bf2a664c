"""Measurements past one machine: the PostgreSQL store beside bare peers."""
