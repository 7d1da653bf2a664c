"""Uploads: the service receives the bytes, stores them as a blob and, if the caller named a kind, creates a job.

`upload_service` is the entry point for the HTTP handlers. `direct`, `tus`, `chunks` and `presigned` are the protocols,
`lifecycle` is what they have in common, and `staging` holds the bytes of incomplete uploads.
"""
