"""Values that the API lists, e.g. the courses of an account. They are fetched once, at the start of a run."""

from __future__ import annotations

from bide.client.account import Account
from bide.client.apis import Answer, Throttled
from bide.client.apis.pagination import NextMissing
from bide.client.apis.paths import Document, document, source
from bide.client.apis.values import word
from bide.client.http.download import MOST_PAGES
from bide.client.http.retrying import Retrying
from bide.core.errors import SetupError
from bide.pipeline.plan.form import ListingTable
from bide.pipeline.run.pages import Pager

MOST_VALUES = 1_000_000


async def list_values(
    account: Account, retrying: Retrying, name: str, listing: ListingTable
) -> list[str | int]:
    """In the API's order, each once; SetupError if the listing has none, or cannot be read."""
    items, value = source(listing.items), source(listing.value)
    pager = Pager(listing.pages, _path(listing)) if listing.pages is not None else None
    url: str | None = (account.api.url or "") + listing.path
    if pager is not None:
        url = pager.first(str(url))
    found: dict[str | int, None] = {}
    seen: set[str] = set()
    while url is not None:
        if url in seen or len(seen) >= MOST_PAGES:
            raise SetupError(
                f"The listing of {name} has more than {MOST_PAGES} pages, or a page names an earlier one as the next"
            )
        seen.add(url)
        answer = await _page(account, retrying, url)
        listed = items(document(answer))
        if not isinstance(listed, list):
            raise SetupError(f"The listing of {name}, {listing.path}, has no list at {listing.items!r}")
        for item in listed:
            text = word(value(Document(item)))
            if text is None:
                raise SetupError(f"An item of the listing of {name} has no value at {listing.value!r}")
            if len(found) >= MOST_VALUES:
                raise SetupError(f"The listing of {name} has more than {MOST_VALUES} values")
            found[text] = None
        try:
            url = pager.following(url, len(seen) - 1, answer) if pager is not None else None
        except NextMissing as error:
            raise SetupError(f"The listing of {name}, {listing.path}: {error}") from None
    if not found:
        raise SetupError(f"The listing of {name}, {listing.path}, is empty: nothing would be exported")
    return list(found)


def _path(listing: ListingTable) -> str:
    return listing.items if isinstance(listing.items, str) else listing.items[0]


async def _page(account: Account, retrying: Retrying, url: str) -> Answer:
    async def ask() -> Answer:
        answer = await account.send(account.api.calls.fetch(url))
        if account.api.reader.throttled(answer):
            raise Throttled(answer.status, "too many requests")
        return answer.raise_for_status()

    return await retrying.run(ask)
