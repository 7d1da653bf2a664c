"""Which blobs a setting names: a folder, or a bucket. What each needs is imported here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bide.core.errors import SetupError
from bide.server.blobs import Blobs, Storage
from bide.server.blobs.files import FileBlobs


def make_blobs(place: str) -> Blobs:
    """`place` is s3://… or the path of a folder."""
    if "://" not in place:
        return FileBlobs(Path(place).absolute())  # wherever a handler goes
    try:
        import aiobotocore  # noqa: F401 — only whether it is there
    except ImportError as error:
        raise SetupError(f"{error.name} is missing: pip install 'bide[s3]'") from None
    from bide.server.blobs.s3 import S3Blobs

    return S3Blobs(place)


def signing_for(blobs: Blobs, now: Callable[[], float]) -> Storage:
    """Who signs requests that put to these blobs: they themselves when they can, else the service does, by this clock."""
    if isinstance(blobs, Storage):
        return blobs
    from bide.server.blobs.local_signing import LocalSigning

    assert isinstance(blobs, FileBlobs)
    return LocalSigning(blobs, now)
