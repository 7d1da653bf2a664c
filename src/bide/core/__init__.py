"""What both ends think with. Pure: no I/O, no clock read, no randomness that is not passed in."""
