"""How fast the waiting end polls."""
