"""Polling: which job to ask about next, the request, and what its answer changes."""
