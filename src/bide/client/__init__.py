"""The client: submits jobs, waits for them and fetches their results."""

DEFAULT_URL = "http://127.0.0.1:8642"
