"""Names of jobs: converts ids and URLs, from a user or from an API, to a Ref and back.

An id becomes part of a URL, so an id that could lead to another URL is rejected.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from bide.client.apis.answers import Ref
from bide.client.apis.form import Description
from bide.client.apis.templates import Template
from bide.client.apis.toml_lines import within
from bide.client.apis.values import absolute
from bide.core.errors import SetupError

LONGEST_ID = 2000
_PLACE = re.compile(r"\{([a-z_]+)\}")
_REMEMBERED = re.compile(r"\{\+?ref\.")
_NO_VALUES: dict[str, str] = {}  # shared: a dict per job would take 64 bytes


class References:
    def __init__(self, form: Description, base: str | None) -> None:
        self._form = form
        self._base = base
        path = form.ask.path
        self._path = None
        # Whether text other than a URL identifies a job.
        self._by_name = path is not None and (form.written is not None or not _REMEMBERED.search(path))
        if path is not None:
            bare = path.partition("?")[0]
            pattern = Template(bare, escape=True).pattern().pattern  # [ask] has been checked before
            # If all jobs share one status URL, the URL does not identify a job.
            self._path = re.compile(f"{pattern}$") if "<id>" in pattern else None
        with within("written"):
            self._written = _written(form.written) if form.written else None

    def ref(self, text: str) -> Ref:
        """Return the Ref of an id or a URL; SetupError if it does not name a job of this API."""
        text = text.strip()
        if self._is_url(text):
            return self._of_url(text)
        if not self._by_name:
            raise SetupError(
                f"{self._form.name} identifies jobs by URL. Give the status URL of {text!r}"
            )
        more: dict[str, str] = {}
        if self._written is not None:
            match = self._written.fullmatch(text)
            if match is None:
                raise SetupError(
                    f"{text!r} is not a job of {self._form.name}. Use the form {self._form.written}, or its URL"
                )
            more = match.groupdict()
            text = more.pop("id")
        for value in (text, *more.values()):
            if not usable(value):
                raise SetupError(
                    f"{value!r} is not a valid job id: it is empty, too long, or could lead to another URL"
                )
        if self._base is None:
            raise SetupError(
                f"{self._form.name} has no fixed URL. Give the URL of the service, or the URL of each job"
            )
        return Ref(text, None, more or _NO_VALUES)

    def text(self, ref: Ref) -> str | None:
        """Return text from which `ref` makes the same Ref; None if only a URL can do that."""
        if ref.url is not None:
            return ref.url
        if not self._by_name:
            return None
        text = ref.id
        if self._form.written is not None:
            names = {"id": ref.id, **ref.more}
            if not all(name in names for name in _PLACE.findall(self._form.written)):
                return None
            text = _PLACE.sub(lambda match: names[match[1]], self._form.written)
            match = self._written.fullmatch(text) if self._written is not None else None
            if match is None or any(names[name] != found for name, found in match.groupdict().items()):
                return None
        return None if self._is_url(text) or text != text.strip() else text

    def _is_url(self, text: str) -> bool:
        """Where ids are not part of a URL, an id such as gid://shopify/BulkOperation/1 is not a URL."""
        return text.lower().startswith(("http://", "https://")) or (
            "://" in text and self._path is not None
        )

    def _of_url(self, text: str) -> Ref:
        url = absolute(None, text)
        if url is None:
            raise SetupError(f"{text!r} is not an http or https URL")
        if urlsplit(url).username is not None or urlsplit(url).password is not None:
            raise SetupError(
                "The URL of a job must not contain a user or a password. Give the key separately"
            )
        id, more, known = self.of_path(url)
        # If the id alone gives the same URL, the URL is not stored.
        return Ref(id, None if known else url, more)

    def of_path(self, url: str) -> tuple[str, dict[str, str], bool]:
        """Return the id, other values in the URL, and whether the API's base and these give the same URL."""
        parts = urlsplit(url)
        match = self._path.search(parts.path) if self._path is not None else None
        if match is not None:
            found = {name: unquote(value) for name, value in match.groupdict().items()}
            id = found.pop("id")
            more = {name.removeprefix("ref__"): value for name, value in found.items()}
            if all(usable(value) for value in (id, *more.values())):
                before = f"{parts.scheme}://{parts.netloc}{parts.path[: match.start()]}"
                return id, more, before == self._base and not parts.query
        last = unquote(parts.path.rstrip("/").rpartition("/")[2])
        return (last if usable(last) else url), {}, False

    def base_of(self, url: str) -> str | None:
        """Return the URL of the service from the URL of one of its jobs; None if it has another form."""
        url = absolute(None, url) or ""
        parts = urlsplit(url)
        match = self._path.search(parts.path) if url and self._path is not None else None
        if match is None or parts.username is not None:
            return None
        return f"{parts.scheme}://{parts.netloc}{parts.path[: match.start()]}"


def usable(id: str) -> bool:
    """Return whether an id can be part of a URL without leading elsewhere."""
    if not 0 < len(id) <= LONGEST_ID or not id.isprintable():
        return False
    return not any(part in (".", "..") for part in re.split(r"[/\\]", id))


def _written(text: str) -> re.Pattern[str]:
    names = _PLACE.findall(text)
    if "id" not in names or len(set(names)) != len(names):
        raise ValueError(f"`written` {text!r} must contain {{id}}, and each name only once")
    out = []
    for index, part in enumerate(_PLACE.split(text)):
        out.append(re.escape(part) if index % 2 == 0 else f"(?P<{part}>[^/]+)")
    return re.compile("".join(out))
