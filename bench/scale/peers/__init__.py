"""Programs of the peers, run by their own Python."""
