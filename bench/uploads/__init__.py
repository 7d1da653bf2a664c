"""Measurements of uploads and blobs, and the storage server that tests use, too."""
