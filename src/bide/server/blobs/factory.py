"""Creates the blobs that a setting names: a folder or a bucket. Dependencies are imported only if they are needed."""

from __future__ import annotations

from pathlib import Path

from bide.core.errors import SetupError
from bide.server.blobs import Blobs
from bide.server.blobs.files import FileBlobs


def make_blobs(location: str) -> Blobs:
    """`location` is s3://… or the path of a folder."""
    if "://" not in location:
        return FileBlobs(Path(location).absolute())  # handlers may change the working directory
    try:
        import aiobotocore  # noqa: F401
    except ImportError as error:
        raise SetupError.not_installed(f"{error.name} is not installed", "s3") from None
    from bide.server.blobs.s3 import S3Blobs

    return S3Blobs(location)
