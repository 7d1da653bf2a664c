"""Uploads: the service receives the bytes, stores them as a blob and, if the caller named a kind, creates a job.

`upload_service` is the entry point for the HTTP handlers; `staging` holds the bytes of incomplete uploads. `fair_turns`
and the upload service's semaphore bound the work per event loop iteration, so that many uploads do not delay polls.
"""
