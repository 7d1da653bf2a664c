"""Whom a command speaks to: a bide service or the API of --api; `bide wait` to several of them on one ledger.

A key or a header goes only where it is meant to go: to the API of --api, to the service of --url, or, given as a flag,
to the address of a job's URL. BIDE_URL and BIDE_KEY are about a bide service: another API has its own where its
description says. Were they used for it, its key would go to that service, or that service's key to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import click

from bide.cli.settings import Connection
from bide.cli.targets import split_url
from bide.cli.trust import confirm, remember
from bide.client.apis import Api, load, names, text_of
from bide.client.apis.demands import DescriptionFile, demands, demands_at
from bide.client.apis.form import Description
from bide.client.apis.loading import form_of
from bide.client.client import AsyncClient
from bide.client.job import JobHandle
from bide.client.ledger import Entry, Key, bare
from bide.client.options import ClientOptions
from bide.core.errors import SetupError

OWN = "bide"
api_option = click.option(
    "--api", metavar="NAME|FILE", help="Another API than bide's own, or its description."
)
budget_option = click.option(
    "--budget",
    envvar="BIDE_BUDGET",
    metavar="URL",
    help="redis://… or postgresql://…, where machines with the same key share what the API allows.",
)
Place = tuple[str, str]  # an API's name and its address


@dataclass(frozen=True)
class Asked:
    """What the command line says about whom to speak to, and how."""

    connection: Connection
    api: str | None
    options: ClientOptions
    trust: bool = False

    @property
    def own(self) -> bool:
        return self.api is None or self.api == OWN

    def described(self, base: str | None = None) -> Api:
        """The API of --api, at --url where that was given, or at the address of a ledger."""
        assert self.api is not None
        url = base
        if url is None and self.connection.url_by_flag:
            url = self.connection.url

        def approve(form: Description, text: str, file: str, folder: Path | None) -> None:
            if folder is not None:
                key = self.connection.key_by_flag
                asked = DescriptionFile(text, file, folder, url, key, typed=base is None)
                confirm(demands(form, asked), self.trust)
            elif base is not None:
                self.confirm_base(form, base, self.connection.key_by_flag)

        try:
            return load(self.api, url, approve)
        except SetupError as error:
            raise self.refused(error) from None

    def confirm_base(self, form: Description, base: str, key: bool) -> None:
        """An address of a ledger gets a secret only if the description or the user names it too."""
        named = [form.url, self.connection.url if self.connection.url_by_flag else None]
        if base.rstrip("/") not in [bare(url).rstrip("/") for url in named if url is not None]:
            confirm(demands_at(form, base, key), self.trust)

    def remember_base(self, form: Description, base: str) -> None:
        """The user named this address: a later command may take it from the ledger."""
        if self.options.get("ledger") is None or base == form.url:
            return
        remember(demands_at(form, base, True))
        if not self.connection.key_by_flag:
            remember(demands_at(form, base, False))

    def client(self) -> AsyncClient:
        """For a command that speaks to one alone."""
        if self.own:
            return AsyncClient(self.connection.url, self.connection.key, **self.options)
        return self.third(self.described(), self.options)

    def third(self, api: Api, options: ClientOptions, meant: bool = True) -> AsyncClient:
        """An account at another API; `meant`: a key that was given as a flag is for this one."""
        key = self.connection.key if meant and self.connection.key_by_flag else None
        try:
            return AsyncClient(None, key, api=api, **options)
        except SetupError as error:
            raise SetupError(self._explained(error)) from None

    def jobs(self, client: AsyncClient, texts: Iterable[str]) -> list[JobHandle]:
        """From what a person wrote; all of it is understood before the first is touched."""
        try:
            return [client.job(text) for text in texts]
        except SetupError as error:
            raise self.refused(error) from None

    def refused(self, error: SetupError) -> click.UsageError:
        return click.UsageError(self._explained(error))

    def _explained(self, error: SetupError) -> str:
        """What is missing, and that it is not taken from where somebody may have put it."""
        aside = self.connection.set_aside
        if self.own or not aside:
            return str(error)
        verb = "is" if len(aside) == 1 else "are"
        return f"{error}. With --api only flags count: {' and '.join(aside)} {verb} about a bide service"


class Clients:
    def __init__(self, asked: Asked, stack: AsyncExitStack) -> None:
        self._asked = asked
        self._stack = stack
        self._api: Api | None = None if asked.own else asked.described()
        self.all: dict[Place, AsyncClient] = {}
        self._services: dict[str, Place] = {}  # by the address that was given
        self._elsewhere: dict[str, Api] = {}
        self._remembered: set[Place] = set()

    async def job(self, text: str) -> tuple[Key, JobHandle]:
        """From an id or a URL that a person gave."""
        if self._api is None:
            given = self._asked.connection.url
            typed = "://" in text or self._asked.connection.url_by_flag
            address, text = split_url(text) if "://" in text else (given, text)
            place = await self._own(address)
        else:
            near = self._near(self._api, text)
            typed = near.folder is None
            place = await self._third(near)
        if typed and place[1] and place not in self._remembered:
            self._remembered.add(place)
            self._asked.remember_base(_shipped_form(place[0]), place[1])
        try:
            handle = self.all[place].job(text)
        except SetupError as error:  # that is no job of this API
            raise self._asked.refused(error) from None
        return (*place, handle.id), handle

    def _near(self, api: Api, text: str) -> Api:
        """Where a URL is elsewhere and the credential may go there, the same API at that address."""
        base = api.references.base_of(text) if "://" in text else None
        if base is None or base == api.url:
            return api
        if api.url is not None and not self._asked.connection.key_by_flag:
            return api
        if base not in self._elsewhere:
            self._elsewhere[base] = api.at(base)
        return self._elsewhere[base]

    def concerned(self, entry: Entry) -> bool:
        """Whether a job of the ledger is one of those that are waited for."""
        if self._asked.api is None:
            return True
        named = OWN if self._api is None else self._api.name
        at = None
        if self._asked.connection.url_by_flag:
            at = bare((self._api.url or "") if self._api is not None else self._asked.connection.url)
        return entry.api == named and (at is None or entry.base == at.rstrip("/"))

    async def of_ledger(self, places: Iterable[Place]) -> None:
        """Opens those that are missing for jobs of the ledger."""
        missing = [place for place in places if place not in self.all]
        alone = len(missing) == 1 and not self.all
        for name, base in missing:
            if name == OWN:
                if self._asked.connection.key_by_flag:
                    self._asked.confirm_base(_shipped_form(OWN), base, True)
                await self._own(base)
            elif self._api is not None:
                await self._third(self._asked.described(base or None))
            else:
                form = _shipped_form(name)
                given = alone and self._asked.connection.key_by_flag
                if base:
                    self._asked.confirm_base(form, base, given)
                await self._third(load(name, base or None), meant=alone)

    async def _own(self, address: str) -> Place:
        if address not in self._services:
            connection = self._asked.connection
            # The same address as --url, but for a user and a password in it.
            at = connection.url if address == bare(connection.url).rstrip("/") else address
            client = AsyncClient(at, connection.key_for(at), **self._asked.options)
            self._services[address] = await self._kept(client)
        return self._services[address]

    async def _third(self, api: Api, meant: bool = True) -> Place:
        place = (api.name, bare(api.url or ""))
        if place in self.all:
            return place
        options = self._asked.options
        if not meant:
            options = ClientOptions(**{**options, "headers": {}})
        return await self._kept(self._asked.third(api, options, meant))

    async def _kept(self, client: AsyncClient) -> Place:
        account = await client.account()
        place = (client.api, bare(account.api.url or ""))
        if place not in self.all:
            self.all[place] = client
            self._stack.push_async_callback(client.close)
        return place


def _shipped_form(name: str) -> Description:
    """By name only: a ledger must not be able to name a file."""
    if name not in names():
        raise SetupError(
            f"the ledger has jobs of {name}, and no such API comes with bide: name its file with --api"
        )
    return form_of(text_of(name), f"{name}.toml")
