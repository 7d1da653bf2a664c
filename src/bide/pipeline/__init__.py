"""Pipelines: exports of an API initiated, monitored, resolved and normalized into files, from one TOML file.

`loading` reads the file into a Plan, `run` carries it out, `state` keeps the checkpoint; `phase` is the state machine.
"""
