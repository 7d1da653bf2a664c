"""Values that the API itself lists: the courses of an account, for one. Asked for once, at the beginning of a run."""

from __future__ import annotations

from collections.abc import Mapping

from bide.client.account import Account
from bide.client.apis import Throttled
from bide.client.apis.next_page import NextMissing
from bide.client.apis.paths import source
from bide.client.apis.signs import document
from bide.client.apis.values import word
from bide.client.http.transport import Answer, problem
from bide.core.errors import SetupError
from bide.pipeline.form import Listing
from bide.pipeline.outage import Outage
from bide.pipeline.pages import MOST_PAGES, Pager

MOST_VALUES = 1_000_000


async def list_values(account: Account, outage: Outage, name: str, listing: Listing) -> list[str | int]:
    """In the order of the API, each once; SetupError when there is nothing to go by."""
    items, value = source(listing.items), source(listing.value)
    pager = Pager(listing.pages, _path(listing)) if listing.pages is not None else None
    url: str | None = (account.api.url or "") + listing.path
    if pager is not None:
        url = pager.first(str(url))
    found: dict[str | int, None] = {}
    seen: set[str] = set()
    while url is not None:
        if url in seen or len(seen) >= MOST_PAGES:
            raise SetupError(f"the listing of {name} leads back to an earlier page, or on for ever")
        seen.add(url)
        answer = await _page(account, outage, url)
        listed = items(document(answer.body), answer.headers, None)
        if not isinstance(listed, list):
            raise SetupError(f"the listing of {name}, {listing.path}, has no list at {listing.items!r}")
        for item in listed:
            told = word(value(item, {}, None))
            if told is None or len(found) >= MOST_VALUES:
                raise SetupError(f"an item of the listing of {name} has nothing at {listing.value!r}")
            found[told] = None
        try:
            url = _following(pager, url, len(seen) - 1, answer.headers, answer.body)
        except NextMissing as error:
            raise SetupError(f"the listing of {name}, {listing.path}: {error}") from None
    if not found:
        raise SetupError(f"the listing of {name}, {listing.path}, is empty: nothing would be exported")
    return list(found)


def _path(listing: Listing) -> str:
    return listing.items if isinstance(listing.items, str) else listing.items[0]


def _following(
    pager: Pager | None, url: str, number: int, headers: Mapping[str, str], body: bytes
) -> str | None:
    return pager.following(url, number, headers, body) if pager is not None else None


async def _page(account: Account, outage: Outage, url: str) -> Answer:
    poller = await account.open()

    async def ask() -> Answer:
        answer = await poller.send(account.api.fetch(url))
        if account.api.throttled(answer.status, answer.headers, answer.body):
            raise Throttled(answer.status, "too many requests")
        if answer.status >= 400:
            raise problem(answer.status, answer.headers, answer.body, url)
        return answer

    return await outage.persist(ask)
