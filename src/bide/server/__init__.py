"""The server: accepts jobs, runs them, and reports their state."""
