"""Submissions with files: small files in one request, large ones as resumable uploads."""
