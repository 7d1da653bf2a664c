"""The budget that an account shares with other machines.

Its name is a fingerprint of API, URL and credential, with a salt that is kept in the backend. So a reader of the backend
learns no key, and all processes with the same key find the same budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from bide.client.apis import Api, Credential
from bide.client.apis.values import without_credentials
from bide.client.budgets import fingerprint
from bide.client.budgets.backend import open_backend
from bide.client.budgets.shared import BudgetConnection, SharedBudget
from bide.client.timing import Timing
from bide.core.errors import SetupError
from bide.core.pacing.budget import Limit


@dataclass(frozen=True)
class AccountBudget:
    """Open until `close`. Another process that opens `name` at `url` draws on the same budget."""

    url: str
    name: str
    budget: SharedBudget
    connection: BudgetConnection

    async def close(self) -> None:
        await asyncio.to_thread(self.connection.close)


async def share(
    url: str,
    api: Api,
    credential: Credential | None,
    headers: Mapping[str, str],
    limit: Limit | None,
    timing: Timing,
) -> AccountBudget:
    """SetupError if the backend cannot be used."""
    if timing.speed != 1.0:
        raise SetupError(
            f"A client whose time runs at {timing.speed:g} times the real speed cannot share a budget. "
            "Leave out the shared budget."
        )

    def open_shared() -> AccountBudget:
        connection = BudgetConnection(open_backend(url), now=timing.now)
        try:
            name = _name(api, credential, headers, connection.salt)
            return AccountBudget(url, name, connection.open(name, limit), connection)
        except BaseException:
            connection.close()
            raise

    return await asyncio.to_thread(open_shared)


def _name(api: Api, credential: Credential | None, headers: Mapping[str, str], salt: bytes) -> str:
    given = {name.lower(): value for name, value in headers.items()}
    proof = credential.fingerprint(salt) if credential is not None else given.get("authorization", "")
    return fingerprint(
        "\0".join((api.name, without_credentials(api.url or "").rstrip("/"), proof)), salt
    )
