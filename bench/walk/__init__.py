"""How many calls the client and the service make on the path of one job, for docs/explanation/architecture.md.

It prints figures for that page and has no bar.
"""
