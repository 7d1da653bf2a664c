"""Pipelines: exports of an API initiated, monitored, resolved and normalized into files, from one TOML file."""
