"""The HTTP vocabulary of both ends."""
