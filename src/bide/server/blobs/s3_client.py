"""A connection to S3 or what is compatible with it: where it is, one client a loop, and what its errors mean.

1. The credential comes from where every AWS program looks for it (AWS_* variables, ~/.aws, a role): never from an
   address of ours, never into a log.
2. Whatever botocore raises leaves here as one of three: not there, refused (somebody must act), or unavailable.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import msgspec

from bide.core.errors import BideError, SetupError, StorageUnavailable
from bide.server.blobs import BlobMissing

T = TypeVar("T")
NOT_THERE = {"404", "NoSuchKey", "NoSuchUpload", "NotFound"}
CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 60.0
ATTEMPTS = 3
CONNECTIONS = 64
PROBLEMS = {
    "NoSuchBucket": "there is no such bucket: make it, or correct --blobs",
    "AccessDenied": "the credential may not do this: give it the rights to put, get, list and delete objects there",
    "403": "the credential may not do this: give it the rights to put, get, list and delete objects there",
    "InvalidAccessKeyId": "the access key is not known there: correct AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret key or the region is wrong: correct AWS_SECRET_ACCESS_KEY, or region= of --blobs",
    "AuthorizationHeaderMalformed": "the region is wrong: say region= in --blobs",
    "RequestTimeTooSkewed": "this machine's clock is wrong: set it",
}


class EmptyRange(BideError):
    """The object is there, and has none of the bytes that were asked for."""


class Place(msgspec.Struct, frozen=True):
    """`s3://bucket/prefix?endpoint=…&region=…`, read."""

    bucket: str
    prefix: str  # "" or ends in "/"
    endpoint: str | None
    region: str | None

    @property
    def shown(self) -> str:
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"s3://{self.bucket}/{self.prefix}{at}"


def read_place(url: str) -> Place:
    form = "s3://BUCKET[/PREFIX][?endpoint=https://…&region=…]"
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise SetupError(
            "--blobs has a credential in it, which would end up in logs: put it into AWS_ACCESS_KEY_ID and "
            f"AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials, and say {form}"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - {"endpoint", "region"})
    if parts.scheme != "s3" or not parts.netloc or parts.fragment or unknown:
        more = f"; it has no {', '.join(unknown)}" if unknown else ""
        raise SetupError(f"--blobs {url!r} is not of the form {form}{more}")
    endpoint = options.get("endpoint")
    if endpoint is not None:
        at = urlsplit(endpoint)
        if at.scheme not in ("http", "https") or not at.netloc or "@" in at.netloc:
            raise SetupError(
                f"--blobs: endpoint={endpoint!r} is not an address such as https://s3.example.org"
            )
    prefix = parts.path.strip("/")
    return Place(parts.netloc, f"{prefix}/" if prefix else "", endpoint, options.get("region"))


class S3Client:
    """Calls of one bucket, each on the loop that it is made on."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._clients: dict[asyncio.AbstractEventLoop, Any] = {}
        self._making = asyncio.Lock()

    async def get(self) -> Any:
        if asyncio.current_task() is None:
            await asyncio.sleep(
                0
            )  # a request that has not waited yet is in no task, and botocore needs to be in one
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            async with self._making:
                if loop not in self._clients:
                    self._clients[loop] = await self._make()
        return self._clients[loop]

    async def _make(self) -> Any:
        # The import takes most of a second; meanwhile others are served.
        await asyncio.to_thread(importlib.import_module, "aiobotocore.session")
        from aiobotocore.config import AioConfig
        from aiobotocore.session import get_session

        for name in ("botocore", "aiobotocore"):  # at DEBUG they tell what is signed
            logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger(name).level))
        place = self.place
        config = AioConfig(
            signature_version="s3v4",
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            max_pool_connections=CONNECTIONS,
            s3={"addressing_style": "path" if place.endpoint else "auto"},
            # Checksums in trailers are AWS's own; what is compatible often refuses them.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        region = place.region or os.environ.get("AWS_REGION")
        with translated(place):
            maker = get_session().create_client(
                "s3", region_name=region, endpoint_url=place.endpoint, config=config
            )
            return await maker.__aenter__()

    async def call(self, operation: str, **given: Any) -> Any:
        """One request, by botocore's name for it; the bucket is ours."""
        client = await self.get()
        with translated(self.place):
            return await getattr(client, operation)(Bucket=self.place.bucket, **given)

    async def pages(self, operation: str, **given: Any) -> AsyncIterator[Any]:
        client = await self.get()
        with translated(self.place):
            async for page in client.get_paginator(operation).paginate(
                Bucket=self.place.bucket, **given
            ):
                yield page

    async def sign(self, operation: str, seconds: int, **given: Any) -> str:
        client = await self.get()
        with translated(self.place):
            url = await client.generate_presigned_url(
                operation, Params={"Bucket": self.place.bucket, **given}, ExpiresIn=seconds
            )
        return str(url)

    async def close(self) -> None:
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.__aexit__(None, None, None)


@contextlib.contextmanager
def translated(place: Place) -> Any:
    """Errors of botocore and of connections as those of the port."""
    import aiohttp
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except ClientError as error:
        raise _of_answer(place, error) from error
    except NoCredentialsError:
        raise StorageUnavailable(
            f"{place.shown} cannot be used: there is no credential. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
            "for this process, or write ~/.aws/credentials"
        ) from None
    except (BotoCoreError, aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        what = type(error).__name__
        raise StorageUnavailable(f"{place.shown} does not answer as it should ({what})") from error


def _of_answer(place: Place, error: Any) -> BideError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    if code in NOT_THERE:
        return BlobMissing(f"{place.shown} has no such object")
    if code in ("InvalidRange", "416"):
        return EmptyRange(f"{place.shown}: no such range")
    advice = PROBLEMS.get(code) or str(error.response.get("Error", {}).get("Message", ""))[:200]
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return StorageUnavailable(f"{place.shown} answered {status} {code}: {advice}")


class Background:
    """A loop of its own, for those who block: handlers. A copy that a handler forks gets a new one."""

    def __init__(self) -> None:
        self._pid = 0
        self._starting = threading.Lock()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._starting:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="bide-s3", daemon=True
                )
                self._thread.start()
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result()
        except BaseException:  # the job is to stop: so is what it waits for
            running.cancel()
            raise

    def end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Closes what was opened on its loop."""
        if self._pid == os.getpid():
            self.run(last())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._pid = 0
