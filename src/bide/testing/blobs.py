"""The conformance suites of blob storage. Say how to create one:

    class TestMyBlobs(BlobsSuite):
        async def blobs(self, place: Path) -> Blobs:
            return MyBlobs(place)

Storage that receives the signed requests itself also runs `SigningSuite`, and storage that receives uploads in parts
`PartStorageSuite`. `place` is a folder that no other test uses.
Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bide.core.errors import JobError
from bide.core.jobs.record import FileInfo
from bide.core.wire.http import is_job_id
from bide.server.blobs import (
    UPLOADS,
    BlobMissing,
    Blobs,
    PartChanged,
    Signed,
    StoredPart,
    chunk_key,
    job_key,
    new_object_key,
    upload_key,
)
from bide.server.upload_record import owner_of

JOB, OTHER = "01JAAAAAAAAAAAAAAAAAAAAAAA", "01JBBBBBBBBBBBBBBBBBBBBBBB"
LARGE = b"0123456789abcdef" * (9 * 65536 + 1)  # more than one part of a multipart upload


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def read(blobs: Blobs, blob: str, first: int = 0, last: int | None = None) -> bytes:
    async with aclosing(await blobs.open(blob, first, last)) as pieces:
        return b"".join([piece async for piece in pieces])


@pytest.mark.asyncio
class BlobsSuite:
    """Every rule of `bide.server.blobs` that can be observed from outside."""

    async def blobs(self, place: Path) -> Blobs:
        raise NotImplementedError

    @pytest_asyncio.fixture
    async def kept(self, tmp_path: Path) -> AsyncIterator[Blobs]:
        blobs = await self.blobs(tmp_path)
        yield blobs
        await blobs.close()

    async def put(self, blobs: Blobs, *args: Any) -> Any:
        # As in a handler: not on the event loop of the service.
        return await asyncio.to_thread(blobs.put, *args)

    @pytest.mark.parametrize("size", [0, 1, len(LARGE)])
    async def test_what_is_put_is_read_and_fetched(self, kept: Blobs, tmp_path: Path, size: int) -> None:
        data = LARGE[:size]
        source = tmp_path / "source"
        source.write_bytes(data)
        file = await self.put(kept, JOB, 3, "a b.mp4", source, "video/mp4")
        assert (file.name, file.content_type, file.size) == ("a b.mp4", "video/mp4", size)
        assert file.sha256 == _sha(data)
        assert source.read_bytes() == data
        assert await read(kept, file.blob) == data
        path = await asyncio.to_thread(kept.fetch, file, tmp_path / "here")
        assert path.read_bytes() == data

    async def test_bytes_are_put_without_a_file(self, kept: Blobs) -> None:
        file = await self.put(kept, JOB, 1, ".result.json", b"[1]", "application/json")
        assert (file.size, file.sha256) == (3, _sha(b"[1]"))
        assert await read(kept, file.blob) == b"[1]"

    async def test_attempts_do_not_overwrite_each_other(self, kept: Blobs) -> None:
        newer = await self.put(kept, JOB, 2, "a", b"newer", "text/plain")
        older = await self.put(kept, JOB, 1, "a", b"older", "text/plain")
        assert await read(kept, newer.blob) == b"newer"
        assert await read(kept, older.blob) == b"older"

    async def test_two_processes_with_the_same_fence_do_not_overwrite_each_other(
        self, kept: Blobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After a failover that lost a claim, the store issues its fence again."""
        mine = await self.put(kept, JOB, 1, "a", b"mine", "text/plain")
        monkeypatch.setattr("bide.server.blobs._PROCESS", "another")
        other = await self.put(kept, JOB, 1, "a", b"another's", "text/plain")
        assert await read(kept, mine.blob) == b"mine"
        assert await read(kept, other.blob) == b"another's"

    async def test_the_same_attempt_may_put_a_name_again(self, kept: Blobs) -> None:
        await self.put(kept, JOB, 1, "a", b"first, and longer", "text/plain")
        file = await self.put(kept, JOB, 1, "a", b"second", "text/plain")
        assert await read(kept, file.blob) == b"second"

    async def test_a_name_that_is_none_is_refused(self, kept: Blobs) -> None:
        for name in ("", "..", "a/b", "a\\b", "a\0b", "\u202egpj.exe", "x" * 300):
            with pytest.raises(ValueError):
                await self.put(kept, JOB, 1, name, b"", "text/plain")

    async def test_any_other_name_is_kept(self, kept: Blobs) -> None:
        for name in ("ü ß.txt", "100%", "a+b&c=d?e#f", "a%2Fb", "~"):
            file = await self.put(kept, JOB, 1, name, name.encode(), "text/plain")
            assert await read(kept, file.blob) == name.encode()

    async def test_ranges(self, kept: Blobs) -> None:
        file = await self.put(kept, JOB, 1, "a", LARGE, "text/plain")
        end = len(LARGE) - 1
        for first, last in ((0, 0), (0, 9), (5, 700_000), (end - 3, end), (end, end)):
            assert await read(kept, file.blob, first, last) == LARGE[first : last + 1]
        assert await read(kept, file.blob, end - 9) == LARGE[-10:]

    async def test_a_stream_that_is_left_early_is_closed(self, kept: Blobs) -> None:
        file = await self.put(kept, JOB, 1, "a", LARGE, "text/plain")
        for _ in range(5):
            async with aclosing(await kept.open(file.blob)) as pieces:
                assert await anext(pieces)
        await (await kept.open(file.blob)).aclose()  # before the first read

    async def test_a_missing_blob_is_reported_before_the_first_byte(
        self, kept: Blobs, tmp_path: Path
    ) -> None:
        for blob in (job_key(JOB, 1, "a"), upload_key("none")):
            with pytest.raises(BlobMissing):
                await kept.open(blob)
        file = FileInfo("a", "text/plain", 1, "", job_key(JOB, 1, "a"))
        with pytest.raises(JobError, match="FILE_GONE"):
            await asyncio.to_thread(kept.fetch, file, tmp_path / "here")

    async def test_a_finished_file_is_adopted(self, kept: Blobs, tmp_path: Path) -> None:
        for upload, data in (("u1", b"small"), ("u2", LARGE), ("u3", b"")):
            source = tmp_path / "finished"
            source.write_bytes(data)
            await kept.adopt(upload_key(upload), source, "video/mp4")
            assert not source.exists()
            assert await read(kept, upload_key(upload)) == data

    async def test_adopting_again_after_a_crash_gives_the_same(
        self, kept: Blobs, tmp_path: Path
    ) -> None:
        for _ in range(2):
            source = tmp_path / "finished"
            source.write_bytes(b"same")
            await kept.adopt(upload_key("u1"), source, "video/mp4")
        assert await read(kept, upload_key("u1")) == b"same"

    async def test_an_owner_is_removed_with_all_that_it_has_and_nobody_else(
        self, kept: Blobs, tmp_path: Path
    ) -> None:
        gone = [
            await self.put(kept, JOB, fence, name, b"x", "text/plain")
            for fence in (1, 2)
            for name in ("a", "b")
        ]
        stays = await self.put(kept, OTHER, 1, "a", b"y", "text/plain")
        for upload in ("u1", "u10"):
            (tmp_path / upload).write_bytes(b"z")
            await kept.adopt(upload_key(upload), tmp_path / upload, "text/plain")
        await kept.remove(JOB)
        await kept.remove(owner_of("u1"))
        await kept.remove("01JNOBODYHASEVERHADTHISONE")
        for blob in [*(file.blob for file in gone), upload_key("u1")]:
            with pytest.raises(BlobMissing):
                await kept.open(blob)
        assert await read(kept, stays.blob) == b"y"
        assert await read(kept, upload_key("u10")) == b"z"

    async def test_owners_that_nobody_has_touched_for_long(self, kept: Blobs, tmp_path: Path) -> None:
        await self.put(kept, JOB, 1, "a", b"x", "text/plain")
        await self.put(kept, OTHER, 1, "a", b"x", "text/plain")
        (tmp_path / "u").write_bytes(b"z")
        await kept.adopt(upload_key("u1"), tmp_path / "u", "text/plain")
        now = time.time()
        later = [owner for owner in await kept.owners("", now + 60) if owner != UPLOADS]
        assert sorted(later) == [JOB, OTHER]
        assert list(await kept.owners(UPLOADS, now + 60)) == ["u1"]
        assert not await kept.owners("", now - 600)
        assert not await kept.owners(UPLOADS, now - 600)

    async def test_they_belong_to_the_store_that_has_come_first(self, kept: Blobs) -> None:
        assert await kept.store_id() is None
        assert await kept.claim("one") == "one"
        assert await kept.claim("two") == await kept.claim("one") == "one"
        assert await kept.store_id() == "one"
        assert not [owner for owner in await kept.owners("", time.time() + 60) if is_job_id(owner)]

    async def test_what_is_in_quarantine_is_marked_and_stays(self, kept: Blobs, tmp_path: Path) -> None:
        file = await self.put(kept, JOB, 1, "a", b"x", "text/plain")
        (tmp_path / "u").write_bytes(b"z")
        await kept.adopt(upload_key("u1"), tmp_path / "u", "text/plain")
        assert await kept.quarantined("") == await kept.quarantined(UPLOADS) == {}
        begin = time.time()
        for owner in (JOB, owner_of("u1")):
            await kept.quarantine(owner)
        assert list(await kept.quarantined("")) == [JOB]
        assert list(await kept.quarantined(UPLOADS)) == ["u1"]
        assert abs((await kept.quarantined(""))[JOB] - begin) < 60
        assert await read(kept, file.blob) == b"x"
        assert await read(kept, upload_key("u1")) == b"z"
        owners = {owner for owner in await kept.owners("", time.time() + 60) if is_job_id(owner)}
        assert owners == {JOB}
        for _ in range(2):
            await kept.release(JOB)
        assert await kept.quarantined("") == {}
        assert list(await kept.quarantined(UPLOADS)) == ["u1"]

    async def test_a_check_leaves_nothing(self, kept: Blobs) -> None:
        assert await kept.check()
        assert not await kept.owners("", time.time() + 60)


def send(signed: Signed, body: bytes, headers: Mapping[str, str] | None = None) -> int:
    """Send a request like any caller with a signed URL. Return the status."""
    given = dict(signed.headers if headers is None else headers)
    given.pop("Content-Length", None)
    request = urllib.request.Request(signed.url, data=body, method=signed.method, headers=given)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionResetError | BrokenPipeError):
            return 400  # refused before the whole body was read, and the connection closed
        raise
    except ConnectionResetError:  # the same, while the response was read
        return 400


@pytest.mark.asyncio
class SigningSuite:
    """The rules of `Signing`: storage accepts what was signed, and nothing else."""

    async def signing(self, place: Path) -> Any:
        """Return blobs that are their own `Signing`."""
        raise NotImplementedError

    @pytest_asyncio.fixture
    async def signs(self, tmp_path: Path) -> AsyncIterator[Any]:
        blobs = await self.signing(tmp_path)
        yield blobs
        await blobs.close()

    async def test_what_was_signed_is_taken(self, signs: Any) -> None:
        key = upload_key("u1")
        assert await signs.head(key) is None
        signed = await signs.sign_put(key, "video/mp4", 5, 60)
        assert await asyncio.to_thread(send, signed, b"hello") == 200
        found = await signs.head(key)
        assert (found.size, found.content_type) == (5, "video/mp4")
        assert await read(signs, key) == b"hello"

    async def test_another_size_type_method_or_key_is_refused(self, signs: Any) -> None:
        key = upload_key("u1")
        signed = await signs.sign_put(key, "video/mp4", 5, 60)
        other_type = {**signed.headers, "Content-Type": "text/html"}
        other_key = Signed(signed.url.replace("u1", "u2"), "PUT", signed.headers)
        other_method = Signed(signed.url, "DELETE", signed.headers)
        tampered = Signed(_tampered(signed.url), "PUT", signed.headers)
        for what, body, headers in (
            (signed, b"hello!", None),
            (signed, b"hell", None),
            (signed, b"hello", other_type),
            (other_key, b"hello", None),
            (other_method, b"hello", None),
            (tampered, b"hello", None),
        ):
            assert 400 <= await asyncio.to_thread(send, what, body, headers) < 500, (what, body)
        assert await signs.head(key) is None
        assert await signs.head(upload_key("u2")) is None

    async def test_an_expired_one_is_refused(self, signs: Any) -> None:
        signed = await signs.sign_put(upload_key("u1"), "video/mp4", 5, 1)
        await asyncio.sleep(2.1)  # the storage has its own clock
        assert 400 <= await asyncio.to_thread(send, signed, b"hello") < 500

    async def test_parts_make_a_whole(self, signs: Any) -> None:
        key, size = upload_key("u1"), signs.smallest_part
        multipart = await signs.begin(key, "video/mp4")
        data = (LARGE[:size], LARGE[size : size + 10])
        assert await signs.parts(key, multipart) == []
        for number, part in ((2, data[1]), (1, data[0])):
            signed = await signs.sign_part(key, multipart, number, len(part), 60)
            assert await asyncio.to_thread(send, signed, part) == 200
        assert await signs.head(key) is None
        parts: list[StoredPart] = await signs.parts(key, multipart)
        assert [(part.number, part.size) for part in parts] == [(1, size), (2, 10)]
        await signs.finish(key, multipart, parts)
        assert (await signs.head(key)).size == size + 10
        assert await read(signs, key) == b"".join(data)

    async def test_an_aborted_one_is_gone(self, signs: Any) -> None:
        key = upload_key("u1")
        multipart = await signs.begin(key, "video/mp4")
        signed = await signs.sign_part(key, multipart, 1, 5, 60)
        assert await asyncio.to_thread(send, signed, b"hello") == 200
        await signs.abort(key, multipart)
        await signs.abort(key, multipart)
        with pytest.raises(BlobMissing):
            await signs.parts(key, multipart)
        assert await signs.head(key) is None


@pytest.mark.asyncio
class PartStorageSuite:
    """The rules of `PartStorage`: what one process stores, another one joins, reads and removes."""

    async def parted(self, place: Path) -> Any:
        """Return blobs that are their own `PartStorage`."""
        raise NotImplementedError

    @pytest_asyncio.fixture
    async def stores(self, tmp_path: Path) -> AsyncIterator[Any]:
        blobs = await self.parted(tmp_path)
        assert blobs.part_storage() is blobs
        yield blobs
        await blobs.close()

    async def test_an_object_is_put_read_and_removed(self, stores: Any) -> None:
        key = new_object_key("u1")
        assert key != new_object_key("u1")
        for data in (b"first", b"", b"second"):
            await stores.put_object(key, data, "video/mp4")
            assert await read(stores, key) == data
            assert (await stores.head(key)).size == len(data)
        for _ in range(2):
            await stores.remove_object(key)
        assert await stores.head(key) is None
        await stores.put_object(chunk_key("u1", 0), b"x", "video/mp4")
        await stores.remove(f"{owner_of('u1')}/chunks")
        assert await stores.head(chunk_key("u1", 0)) is None

    async def test_parts_of_several_processes_are_joined(self, stores: Any, tmp_path: Path) -> None:
        key, size = upload_key("u1"), stores.smallest_part
        other = await self.parted(tmp_path)
        multipart = await stores.begin(key, "video/mp4")
        data = (LARGE[:size], LARGE[size : size + 10])
        stale = await stores.put_part(key, multipart, 1, bytes(size))
        first = await stores.put_part(key, multipart, 1, data[0])
        second = await other.put_part(key, multipart, 2, data[1])
        await other.put_part(key, multipart, 3, b"of no record")
        parts = [StoredPart(1, size, stale), StoredPart(2, 10, second)]
        with pytest.raises(PartChanged):
            await other.finish(key, multipart, parts)
        await other.finish(key, multipart, [StoredPart(1, size, first), parts[1]])
        assert await read(stores, key) == b"".join(data)
        await other.close()

    async def test_an_aborted_multipart_upload_accepts_nothing(self, stores: Any) -> None:
        key = upload_key("u1")
        multipart = await stores.begin(key, "video/mp4")
        part = StoredPart(1, 1, await stores.put_part(key, multipart, 1, b"x"))
        await stores.abort(key, multipart)
        with pytest.raises(BlobMissing):
            await stores.put_part(key, multipart, 1, b"x")
        with pytest.raises(BlobMissing):
            await stores.finish(key, multipart, [part])

    async def test_unfinished_multipart_uploads_are_listed(self, stores: Any) -> None:
        assert await stores.multiparts(UPLOADS) == []
        begin = time.time()
        kept = await stores.begin(upload_key("u1"), "video/mp4")
        ended = await stores.begin(upload_key("u2"), "video/mp4")
        await stores.put_part(upload_key("u1"), kept, 1, b"x")
        await stores.abort(upload_key("u2"), ended)
        (found,) = await stores.multiparts(UPLOADS)
        assert (found.key, found.multipart) == (upload_key("u1"), kept)
        assert abs(found.begun_at - begin) < 60
        assert await stores.multiparts("elsewhere") == []
        await stores.abort(upload_key("u1"), kept)
        assert await stores.multiparts(UPLOADS) == []


def _tampered(url: str) -> str:
    return url[:-1] + ("0" if url[-1] != "0" else "1")
