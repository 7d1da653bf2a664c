"""The demo: a real video pipeline as jobs, and what `bide demo` needs to run and show it."""
