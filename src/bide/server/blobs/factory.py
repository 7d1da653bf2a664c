"""Creates the blobs that a setting names: a folder or a bucket. Dependencies are imported only if they are needed."""

from __future__ import annotations

from pathlib import Path

from bide.core.clock import Clock
from bide.core.errors import SetupError
from bide.server.blobs import Blobs, Storage
from bide.server.blobs.files import FileBlobs


def make_blobs(location: str) -> Blobs:
    """`location` is s3://… or the path of a folder."""
    if "://" not in location:
        return FileBlobs(Path(location).absolute())  # handlers may change the working directory
    try:
        import aiobotocore  # noqa: F401
    except ImportError as error:
        raise SetupError(f"{error.name} is missing: pip install 'bide[s3]'") from None
    from bide.server.blobs.s3 import S3Blobs

    return S3Blobs(location)


def signing_for(blobs: Blobs, clock: Clock) -> Storage:
    """Returns the blobs if they sign requests themselves, else a signer of the service."""
    if isinstance(blobs, Storage):
        return blobs
    from bide.server.blobs.local_signing import LocalSigning

    assert isinstance(blobs, FileBlobs)
    return LocalSigning(blobs, clock)
