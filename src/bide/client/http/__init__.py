"""HTTP for the client: connections, credentials, redirects and downloads."""
