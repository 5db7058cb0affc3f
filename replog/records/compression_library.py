"""The optional compression library, and the errors that all codecs share."""

from __future__ import annotations

from types import ModuleType

from replog.errors import InvalidRecordError, UnsupportedCompressionError
from replog.host.extras import install_command
from replog.records.model import Codec


def library(codec: Codec) -> ModuleType:
    """Imports cramjam, which has snappy, lz4 and zstd.

    Raises:
        UnsupportedCompressionError: It is not installed; the message names the codec and what to install.
    """
    try:
        import cramjam
    except ImportError:
        raise UnsupportedCompressionError(
            f"{codec.name.lower()} compression needs a library that is not installed: {install_command('compression')}"
        ) from None
    return cramjam


def too_large(limit: int) -> InvalidRecordError:
    """Returns the error for records that would pass `limit` bytes."""
    return InvalidRecordError(f"the records decompress to more than {limit} bytes; refused")


def damaged(codec: Codec, reason: object) -> InvalidRecordError:
    """Returns the error for compressed bytes that are no stream of this codec."""
    return InvalidRecordError(f"damaged {codec.name.lower()} data: {reason}")
