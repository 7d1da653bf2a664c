"""The waiting end: submits jobs, waits for them and fetches what they made."""

DEFAULT_URL = "http://127.0.0.1:8642"
