"""Polling for one credential in several processes of this machine, which share one budget exactly.

The parent (`poller.py`) keeps the jobs, their listeners, the ledger and the credential, and sends every request that is
not a poll. Each child (`child.py`) polls a share of the jobs and reports their states (`messages.py`).
"""
