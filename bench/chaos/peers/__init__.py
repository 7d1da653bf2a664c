"""Programs of the peers, run by their own Python, with all documented safety settings."""
