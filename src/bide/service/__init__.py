"""Runs services and workers. `build` is the composition root; `backends` creates the store and engine of the settings."""
