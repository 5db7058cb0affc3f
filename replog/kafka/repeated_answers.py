"""Written answers that follow from the metadata alone: while these are the same, so are the answers.

Clients of a cluster ask for the same again and again, all at once where a leader has moved; of thousands of partitions an
answer takes tens of milliseconds to write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from replog.metadata.image import MetadataImage

Buffers = Sequence[bytes | bytearray | memoryview]

ASKED_BYTES_MAX = 1_024
KEPT_BYTES_MAX = 8 << 20
"""Of all answers together."""


class Asked(NamedTuple):
    """A request, but for who sent it.

    Attributes:
        key: The key of the API.
        version: The version of the request.
        body: The bytes behind the header.
    """

    key: int
    version: int
    body: bytes


class RepeatedAnswers:
    """Keeps answers until the metadata change, as many as there is room for.  Of one event loop."""

    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self._controller_id = -1
        self._kept: dict[Asked, Buffers] = {}
        self._kept_bytes = 0

    def find(self, image: MetadataImage, controller_id: int, asked: Asked) -> Buffers | None:
        """Returns what was kept; None: nothing that still holds.

        Args:
            image: The metadata now.
            controller_id: The active controller now.
            asked: The request.
        """
        if image is not self._image or controller_id != self._controller_id:
            self._image, self._controller_id = image, controller_id
            self._kept.clear()
            self._kept_bytes = 0
        return self._kept.get(asked)

    def keep(self, image: MetadataImage, controller_id: int, asked: Asked, written: Buffers) -> None:
        """Keeps an answer, where there is room for it and it is still one of the present.

        Args:
            image: The metadata from which it was made.
            controller_id: The active controller at that time.
            asked: The request.
            written: The answer as it was written, behind its header.
        """
        size = sum(map(len, written))
        is_present = image is self._image and controller_id == self._controller_id
        if not is_present or self._kept_bytes + size > KEPT_BYTES_MAX or len(asked.body) > ASKED_BYTES_MAX:
            return
        if asked not in self._kept:
            self._kept[asked] = written
            self._kept_bytes += size
