"""The client of S3 or compatible storage: location, one client per event loop, and translation of errors.

1. The credential comes from the standard AWS sources (AWS_* variables, ~/.aws, a role), never from --blobs. It is never
   logged.
2. Errors of botocore become BlobMissing, EmptyRange, PartChanged or StorageUnavailable.
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
from bide.server.blobs import BlobMissing, PartChanged

T = TypeVar("T")
MISSING_CODES = {"404", "NoSuchKey", "NoSuchUpload", "NotFound"}
CONNECT_TIMEOUT = 5.0
READ_TIMEOUT = 60.0
ATTEMPTS = 3
CONNECTIONS = 64
PROBLEMS = {
    "NoSuchBucket": "the bucket does not exist: create it, or correct --blobs",
    "AccessDenied": "the credential has no permission: allow it to put, get, list and delete objects",
    "403": "the credential has no permission: allow it to put, get, list and delete objects",
    "InvalidAccessKeyId": "the access key is unknown: correct AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret key or the region is wrong: correct AWS_SECRET_ACCESS_KEY, or region= of --blobs",
    "AuthorizationHeaderMalformed": "the region is wrong: set region= in --blobs",
    "RequestTimeTooSkewed": "the clock of this machine is wrong: set it",
}


class EmptyRange(BideError):
    """The object exists but has no bytes in the requested range."""


class BucketLocation(msgspec.Struct, frozen=True):
    """The parts of `s3://bucket/prefix?endpoint=…&region=…`."""

    bucket: str
    prefix: str  # "" or ends in "/"
    endpoint: str | None
    region: str | None

    @property
    def shown(self) -> str:
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"s3://{self.bucket}/{self.prefix}{at}"


def read_bucket_url(url: str) -> BucketLocation:
    form = "s3://BUCKET[/PREFIX][?endpoint=https://…&region=…]"
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise SetupError(
            "--blobs contains a credential, which could appear in logs: put it into AWS_ACCESS_KEY_ID and "
            f"AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials, and write {form}"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - {"endpoint", "region"})
    if parts.scheme != "s3" or not parts.netloc or parts.fragment or unknown:
        more = f"; unknown: {', '.join(unknown)}" if unknown else ""
        raise SetupError(f"--blobs {url!r} must have the form {form}{more}")
    endpoint = options.get("endpoint")
    if endpoint is not None:
        at = urlsplit(endpoint)
        if at.scheme not in ("http", "https") or not at.netloc or "@" in at.netloc:
            raise SetupError(
                f"--blobs: endpoint={endpoint!r} must be a URL such as https://s3.example.org"
            )
    prefix = parts.path.strip("/")
    return BucketLocation(parts.netloc, f"{prefix}/" if prefix else "", endpoint, options.get("region"))


class S3Client:
    """Sends requests to one bucket, with one client per event loop."""

    def __init__(self, location: BucketLocation) -> None:
        self.location = location
        self._clients: dict[asyncio.AbstractEventLoop, Any] = {}
        self._making = asyncio.Lock()

    async def get(self) -> Any:
        if asyncio.current_task() is None:
            # botocore needs a task, and a request runs in none until its first wait.
            await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            async with self._making:
                if loop not in self._clients:
                    self._clients[loop] = await self._make()
        return self._clients[loop]

    async def _make(self) -> Any:
        # The import takes most of a second, so run it in a thread.
        await asyncio.to_thread(importlib.import_module, "aiobotocore.session")
        from aiobotocore.config import AioConfig
        from aiobotocore.session import get_session

        for name in ("botocore", "aiobotocore"):  # at DEBUG they log the requests that they sign
            logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger(name).level))
        location = self.location
        config = AioConfig(
            signature_version="s3v4",
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            max_pool_connections=CONNECTIONS,
            s3={
                "addressing_style": "path" if location.endpoint else "auto",
                # TLS protects the bytes, and the record has their SHA-256. Another one for the signature of each request
                # would take a quarter of the time of an upload, on the event loop.
                "payload_signing_enabled": False,
            },
            # Checksums in trailers are specific to AWS; compatible storage often rejects them.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        region = location.region or os.environ.get("AWS_REGION")
        with translated(location):
            maker = get_session().create_client(
                "s3", region_name=region, endpoint_url=location.endpoint, config=config
            )
            return await maker.__aenter__()

    async def call(self, operation: str, **given: Any) -> Any:
        """Send one request for the bucket, by its name in botocore."""
        client = await self.get()
        with translated(self.location):
            return await getattr(client, operation)(Bucket=self.location.bucket, **given)

    async def pages(self, operation: str, **given: Any) -> AsyncIterator[Any]:
        client = await self.get()
        with translated(self.location):
            async for page in client.get_paginator(operation).paginate(
                Bucket=self.location.bucket, **given
            ):
                yield page

    async def sign(self, operation: str, seconds: int, **given: Any) -> str:
        client = await self.get()
        with translated(self.location):
            url = await client.generate_presigned_url(
                operation, Params={"Bucket": self.location.bucket, **given}, ExpiresIn=seconds
            )
        return str(url)

    async def close(self) -> None:
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.__aexit__(None, None, None)


@contextlib.contextmanager
def translated(location: BucketLocation) -> Any:
    """Translate errors of botocore and of connections."""
    import aiohttp
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except ClientError as error:
        raise _from_response(location, error) from error
    except NoCredentialsError:
        raise StorageUnavailable(
            f"no credential for {location.shown}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for this process, or "
            "write ~/.aws/credentials"
        ) from None
    except (BotoCoreError, aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        what = type(error).__name__
        raise StorageUnavailable(f"the request to {location.shown} failed ({what})") from error


def _from_response(location: BucketLocation, error: Any) -> BideError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    if code in MISSING_CODES:
        return BlobMissing(f"the object does not exist in {location.shown}")
    if code in ("InvalidRange", "416"):
        return EmptyRange(f"the object in {location.shown} has no bytes in this range")
    if code == "InvalidPart":
        return PartChanged(f"a part of a multipart upload in {location.shown} has changed or is missing")
    advice = PROBLEMS.get(code) or str(error.response.get("Error", {}).get("Message", ""))[:200]
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return StorageUnavailable(f"{location.shown} responded with {status} {code}: {advice}")


class BackgroundLoop:
    """An event loop in a thread, for handlers, which block. A forked process gets a new one."""

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
        except BaseException:  # the job is being stopped
            running.cancel()
            raise

    def end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `last` on the loop, then stop it."""
        if self._pid == os.getpid():
            self.run(last())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._pid = 0
