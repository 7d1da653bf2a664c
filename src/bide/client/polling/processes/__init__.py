"""Past one loop: the polling of one credential spread over processes of this machine that share one budget exactly.

The parent (`poller.py`) keeps what is waited for, who listens, the ledger, the credential and every request that is no
poll. Each child (`child.py`) polls a share of the jobs and tells what it saw (`messages.py`); the budget is on a board
that all of them see (`client/budgets`).
"""
