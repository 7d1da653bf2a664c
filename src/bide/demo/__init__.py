"""The demo: a video pipeline as jobs, and what `bide demo` needs to run it and show its progress."""
