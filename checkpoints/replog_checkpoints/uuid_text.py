"""Uuids as Kafka writes them: the 16 bytes in URL-safe base64 without padding, 22 characters.

    UUID("01020304-0506-0708-1112-131415161718")  <->  AQIDBAUGBwgREhMUFRYXGA

Source: docs/KAFKA.md 1.11.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final
from uuid import UUID

ZERO_UUID: Final = UUID(int=0)
"""Kafka's "no id" (`AAAAAAAAAAAAAAAAAAAAAA`)."""

RESERVED_DIRECTORY_ID_MAX: Final = 99
"""Directory ids 0 to 99 have meanings of their own (migrating, unassigned, lost) and name no directory."""


def uuid_to_text(value: UUID) -> str:
    """Returns 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> UUID:
    """Returns the uuid behind 22 characters of URL-safe base64.

    Raises:
        ValueError: `text` is anything else; a last character with bits that no encoder would set counts, too.
    """
    try:
        raw = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"{text!r} is not a base64url uuid") from error
    if len(raw) != 16 or uuid_to_text(UUID(bytes=raw)) != text:
        raise ValueError(f"{text!r} is not a base64url uuid of 22 characters")
    return UUID(bytes=raw)


def is_reserved_directory_id(value: UUID) -> bool:
    """Whether this id has a meaning of its own and may not name a log directory."""
    return value.int <= RESERVED_DIRECTORY_ID_MAX
