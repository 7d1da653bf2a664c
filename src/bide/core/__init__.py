"""Code that the client and the service share. Pure: no I/O, no clock read, no randomness that is not passed in."""
