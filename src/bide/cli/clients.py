"""The APIs that a command talks to: a bide service or the API of --api; `bide wait` uses several of them on one ledger.

A key or a header goes only to the API of --api, to the service of --url, or, given as a flag, to the address of a
job's URL. BIDE_URL and BIDE_KEY belong to a bide service and are not used for another API: otherwise the key of one
would be sent to the other. BIDE_KEY also goes to a service of the ledger that the user named with --url before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import cast

import click
import msgspec

from bide.cli.settings import Connection
from bide.cli.targets import split_url
from bide.cli.trust import confirm, is_remembered, remember
from bide.client.apis import Api, load, names, text_of
from bide.client.apis.form import Description
from bide.client.apis.loader import form_of
from bide.client.apis.permissions import DescriptionFile, permissions, permissions_at
from bide.client.apis.values import without_credentials
from bide.client.client import AsyncClient
from bide.client.job import JobHandle
from bide.client.ledger import ApiAddress, WaitSettings
from bide.client.options import ClientOptions
from bide.client.polling_options import POLLING_OPTIONS
from bide.core.errors import SetupError

OWN = "bide"
api_option = click.option(
    "--api", metavar="NAME|FILE", help="The name of another API, or the file of its description."
)
budget_option = click.option(
    "--budget",
    envvar="BIDE_BUDGET",
    metavar="URL",
    help="redis://… or postgresql://…: a budget that machines with the same key share.",
)


@dataclass(frozen=True)
class CommandTarget:
    """The API of a command, and the options of its clients."""

    connection: Connection
    api: str | None
    options: ClientOptions
    trust: bool = False

    @property
    def own(self) -> bool:
        return self.api is None or self.api == OWN

    def described(self, base: str | None = None) -> Api:
        """The API of --api, at --url if that is given, or at an address of the ledger."""
        assert self.api is not None
        url = base
        if url is None and self.connection.url_by_flag:
            url = self.connection.url

        def approve(form: Description, text: str, file: str, folder: Path | None) -> None:
            if folder is not None:
                key = self.connection.key_by_flag
                asked = DescriptionFile(text, file, folder, url, key, typed=base is None)
                confirm(permissions(form, asked), self.trust)
            elif base is not None:
                self.confirm_base(form, base, self.connection.key_by_flag)

        try:
            return load(self.api, url, approve)
        except SetupError as error:
            raise self.refused(error) from None

    @cached_property
    def typed_base(self) -> str | None:
        """The address of --url; None without that flag."""
        if not self.connection.url_by_flag:
            return None
        return without_credentials(self.connection.url).rstrip("/")

    def confirm_base(self, form: Description, base: str, key: bool) -> None:
        """An address of a ledger gets a secret only if the description or the user names it too."""
        if base.rstrip("/") == self.typed_base:
            remember(permissions_at(form, base, key))
        elif form.url is None or base.rstrip("/") != form.url.rstrip("/"):
            confirm(permissions_at(form, base, key), self.trust)

    def client(self) -> AsyncClient:
        """The client of a command that uses one API."""
        if self.own:
            return AsyncClient(self.connection.url, self.connection.key, **self.options)
        return self.third(self.described(), self.options)

    def third(self, api: Api, options: ClientOptions, meant: bool = True) -> AsyncClient:
        """An account at another API; `meant`: a key flag belongs to this API."""
        key = self.connection.key if meant and self.connection.key_by_flag else None
        try:
            return AsyncClient(None, key, api=api, **options)
        except SetupError as error:
            raise SetupError(self._explained(error)) from None

    def jobs(self, client: AsyncClient, texts: Iterable[str]) -> list[JobHandle]:
        """The jobs that the user wrote; all texts are read before the first request."""
        try:
            return [client.job(text) for text in texts]
        except SetupError as error:
            raise self.refused(error) from None

    def refused(self, error: SetupError) -> click.UsageError:
        return click.UsageError(self._explained(error))

    def _explained(self, error: SetupError) -> str:
        """The error, and the settings that do not apply to another API."""
        aside = self.connection.set_aside
        if self.own or not aside:
            return str(error)
        verb = "is" if len(aside) == 1 else "are"
        return f"{error}. With --api only flags count: {' and '.join(aside)} {verb} for a bide service"


class Clients:
    """`given` are the settings of the command, `saved` those of the ledger."""

    def __init__(
        self,
        target: CommandTarget,
        stack: AsyncExitStack,
        given: WaitSettings,
        saved: Mapping[ApiAddress, WaitSettings],
    ) -> None:
        self._target = target
        self._stack = stack
        self._given = given
        self.saved = defaultdict(WaitSettings, saved)
        self.settings: dict[ApiAddress, WaitSettings] = {}  # of each client
        self._api: Api | None = None if target.own else target.described()
        self._has_ledger = target.options.get("ledger") is not None
        self.all: dict[ApiAddress, AsyncClient] = {}
        self._services: dict[str, ApiAddress] = {}  # by the address that was given
        self._elsewhere: dict[str, Api] = {}
        self._remembered: set[ApiAddress] = set()

    def job(self, text: str) -> tuple[ApiAddress, JobHandle]:
        """A job by the id or URL that the user gave."""
        if self._api is None:
            given = self._target.connection.url
            typed = "://" in text or self._target.connection.url_by_flag
            address, text = split_url(text) if "://" in text else (given, text)
            place = self._service(address)
        else:
            near = self._near(self._api, text)
            typed = near.folder is None
            place = self._third(near)
        client = self.all[place]
        if self._has_ledger and typed and place not in self._remembered:
            # The user gave this address, so a later command may take it from the ledger.
            self._remembered.add(place)
            self._remember(client._account.api.form, place.base)
        try:
            handle = client.job(text)
        except SetupError as error:  # not a job of this API
            raise self._target.refused(error) from None
        return place, handle

    def _remember(self, form: Description, base: str) -> None:
        """The key of the settings goes to the service of --url, not to that of a job's URL."""
        typed = base.rstrip("/") == self._target.typed_base
        if base not in ("", form.url):
            remember(permissions_at(form, base, True))
            typed = typed or self._api is not None
        if typed and not self._target.connection.key_by_flag:
            remember(permissions_at(form, base, False))

    def _near(self, api: Api, text: str) -> Api:
        """The same API at the address of a URL, if the credential may be sent there."""
        base = api.references.base_of(text) if "://" in text else None
        if base is None or base == api.url:
            return api
        if api.url is not None and not self._target.connection.key_by_flag:
            return api
        if base not in self._elsewhere:
            self._elsewhere[base] = api.at(base)
        return self._elsewhere[base]

    def concerned(self, place: ApiAddress) -> bool:
        """Whether the jobs of the ledger at this place are waited for."""
        if self._target.api is None:
            return True
        named = OWN if self._api is None else self._api.name
        return place.api == named and self._target.typed_base in (None, place.base)

    def open_all(self, places: Iterable[ApiAddress]) -> None:
        """Open the missing clients for places of the ledger."""
        missing = [place for place in places if place not in self.all]
        alone = len(missing) == 1 and not self.all
        for place in missing:
            name, base = place
            description = self.saved[place].description
            if name == OWN:
                key = self._target.connection.key_by_flag
                if key or base.rstrip("/") == self._target.typed_base or self._target.trust:
                    self._target.confirm_base(_shipped_form(OWN), base, key)
                self._service(base)
            elif self._api is not None:
                self._third(self._target.described(base or None))
            elif description is not None:
                self._third(self._stored(description, place), meant=alone)
            else:
                form = _shipped_form(name)
                given = alone and self._target.connection.key_by_flag
                if base:
                    self._target.confirm_base(form, base, given)
                self._third(load(name, base or None), meant=alone)

    def _stored(self, description: str, place: ApiAddress) -> Api:
        """The API of a file that the ledger names. The user must have confirmed the file for this address."""
        if not Path(description).exists():
            raise click.UsageError(
                f"The description {description} cannot be read: it was moved or removed. To wait for the jobs of "
                f"{place.api}, pass its file with --api"
            )
        return replace(self._target, api=description).described(place.base or None)

    def _service(self, address: str) -> ApiAddress:
        if address not in self._services:
            connection = self._target.connection
            # The same address as --url, except for a user and a password in it.
            at = (
                connection.url if address == without_credentials(connection.url).rstrip("/") else address
            )
            place = ApiAddress(OWN, without_credentials(at).rstrip("/"))
            if place not in self.all:
                client = AsyncClient(at, self._key_for(at), **self._options(place))
                self.all[place] = client
                self._stack.push_async_callback(client.close)
            self._services[address] = place
        return self._services[address]

    def _key_for(self, url: str) -> str | None:
        connection = self._target.connection
        if connection.key is None or connection.key_by_login or not self._has_ledger:
            return connection.key_for(url)
        named = is_remembered(
            permissions_at(_shipped_form(OWN), without_credentials(url).rstrip("/"), False)
        )
        return connection.key if named else connection.key_for(url)

    def _third(self, api: Api, meant: bool = True) -> ApiAddress:
        place = ApiAddress(api.name, without_credentials(api.url or ""))
        if place in self.all:
            return place
        options = self._options(place)
        if not meant:
            options = ClientOptions(**{**options, "headers": {}})
        self.all[place] = client = self._target.third(api, options, meant)
        self._stack.push_async_callback(client.close)
        return place

    def _options(self, place: ApiAddress) -> ClientOptions:
        """The options of a new client. Its settings are those of the command; where it has none, those of the ledger."""
        given = {
            name: value
            for name, value in msgspec.structs.asdict(self._given).items()
            if value is not None
        }
        if self._target.api is not None:
            given["description"] = self._given.description
        settings = self.settings[place] = msgspec.structs.replace(self.saved[place], **given)
        polling = {name: getattr(settings, name) for name in ("limit", *POLLING_OPTIONS)}
        return cast(ClientOptions, {**self._target.options, **polling})


def _shipped_form(name: str) -> Description:
    """A description that comes with bide. Files are used only if the ledger's settings name them."""
    if name not in names():
        raise SetupError(
            f"the ledger has jobs of {name}, which is not an API that bide ships: pass its file with --api"
        )
    return form_of(text_of(name), f"{name}.toml")
