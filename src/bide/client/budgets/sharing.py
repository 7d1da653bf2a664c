"""An account's part in a budget that machines share: under which name, and with whom.

The name is a fingerprint of API, address and credential, with a salt that is kept where the budget is: who reads the
place learns no key, and all who have the same key find each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from bide.client.apis import Api, Credential
from bide.client.budgets import fingerprint
from bide.client.budgets.opening import open_budgets
from bide.client.budgets.shared import SharedBudgets, SharedPurse
from bide.client.ledger import bare
from bide.client.timing import Timing
from bide.core.budget import Limit
from bide.core.errors import SetupError


@dataclass(frozen=True)
class Sharing:
    """Open until `close`. Another process that is told `url` and `name` draws on the same budget."""

    url: str
    name: str
    purse: SharedPurse
    budgets: SharedBudgets

    async def close(self) -> None:
        await asyncio.to_thread(self.budgets.close)


async def share(
    url: str,
    api: Api,
    credential: Credential | None,
    headers: Mapping[str, str],
    limit: Limit | None,
    timing: Timing,
) -> Sharing:
    """SetupError when the place cannot be used."""
    if timing.speed != 1.0:
        raise SetupError("a rehearsal cannot share a budget: its time is not that of the others")

    def opened() -> Sharing:
        budgets = open_budgets(url, now=timing.now)
        try:
            name = _name(api, credential, headers, budgets.salt)
            return Sharing(url, name, budgets.open(name, limit), budgets)
        except BaseException:
            budgets.close()
            raise

    return await asyncio.to_thread(opened)


def _name(api: Api, credential: Credential | None, headers: Mapping[str, str], salt: bytes) -> str:
    given = {name.lower(): value for name, value in headers.items()}
    proof = credential.fingerprint(salt) if credential is not None else given.get("authorization", "")
    return fingerprint("\0".join((api.name, bare(api.url or "").rstrip("/"), proof)), salt)
