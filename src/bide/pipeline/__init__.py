"""Pipelines: `bide sync` exports data from a job API and publishes it as files, as one TOML file describes.

`plan` reads the TOML file, `run` carries it out and stores a checkpoint, `rows` turns downloaded files into one output.
"""
