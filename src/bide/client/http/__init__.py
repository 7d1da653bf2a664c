"""Requests: connections, signatures, budgets, redirects, retries and downloads."""
