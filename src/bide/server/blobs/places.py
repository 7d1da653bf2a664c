"""Which blobs a setting names: a folder, or a bucket. What each needs is imported here."""

from __future__ import annotations

from pathlib import Path

from bide.core.errors import SetupError
from bide.server.blobs import Blobs
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
