"""Written answers that follow from the metadata alone: while these are the same, so are the answers.

Clients of a cluster ask for the same again and again, and all at once when a leader has moved.  An answer of thousands of
partitions takes tens of milliseconds to write.  So requests for an answer that is being written wait for it; if the
metadata change meanwhile, they wait for one more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from replog.access.authorizer import OPEN, Authorizer
from replog.access.principal import ClientIdentity
from replog.metadata.image import MetadataImage

Buffers = Sequence[bytes | bytearray | memoryview]

ASKED_BYTES_MAX = 1_024
KEPT_BYTES_MAX = 8 << 20
"""The size of all answers together."""


class Asked(Struct, frozen=True):
    """A request, without its sender unless the answer depends on it.

    Attributes:
        listener: The name of the listener by which it came, whose addresses the answer tells.
        sender: Who asks, and from which address; None: all get the same answer.
        key: The key of the API.
        version: The version of the request.
        body: The bytes behind the header.
    """

    listener: str
    sender: ClientIdentity | None
    key: int
    version: int
    body: bytes


class AnswerSource(Struct, frozen=True):
    """The facts that an answer is made from.

    Attributes:
        image: The metadata.
        controller_id: The active controller.
        authorizer: The authorizer that decides what each client is told.
        rights_version: Which of its decisions hold.
    """

    image: MetadataImage
    controller_id: int
    authorizer: Authorizer
    rights_version: int

    def is_as(self, other: AnswerSource) -> bool:
        """Whether the same answers follow from the other facts."""
        return (
            self.image is other.image
            and self.controller_id == other.controller_id
            and self.authorizer is other.authorizer
            and self.rights_version == other.rights_version
        )


class WrittenAnswer(Struct, frozen=True):
    """An answer.

    Attributes:
        buffers: The answer as it was written, behind its header.
        is_repeated: Whether all equal requests get it, until the metadata change.
    """

    buffers: Buffers
    is_repeated: bool


class _Writing:
    """An answer that is being written, as long as a request waits for it."""

    def __init__(self, source: AnswerSource, task: asyncio.Task[WrittenAnswer]) -> None:
        self.source = source
        self.task = task
        self.waiting_count = 0


class RepeatedAnswers:
    """Keeps answers until the metadata change, as many as there is room for.  Of one event loop.

    Args:
        source: The function that returns the facts that answers are made from now.
    """

    def __init__(self, source: Callable[[], AnswerSource]) -> None:
        self._now = source
        self._source = AnswerSource(MetadataImage(), -1, OPEN, 0)
        self._kept: dict[Asked, Buffers] = {}
        self._kept_bytes = 0
        self._writings: dict[Asked, _Writing] = {}

    async def answer(self, asked: Asked, write: Callable[[], Awaitable[WrittenAnswer]]) -> Buffers:
        """Returns the answer that was or is being written to the same request, or has it written.

        Args:
            asked: The request.
            write: The function that answers it.
        """
        if len(asked.body) > ASKED_BYTES_MAX:
            return (await write()).buffers
        while True:
            source = self._now()
            if (kept := self._find(source, asked)) is not None:
                return kept
            writing = self._writings.get(asked)
            if writing is None or writing.task.done():
                writing = self._begin(source, asked, write)
            if writing.source.is_as(source):
                return (await self._written(asked, writing)).buffers
            await asyncio.wait([writing.task])  # of metadata of the past: one at a time is written of each

    def _begin(self, source: AnswerSource, asked: Asked, write: Callable[[], Awaitable[WrittenAnswer]]) -> _Writing:
        task = asyncio.ensure_future(self._write(source, asked, write))
        writing = self._writings[asked] = _Writing(source, task)
        task.add_done_callback(lambda _: self._end(asked, writing))
        return writing

    async def _write(
        self, source: AnswerSource, asked: Asked, write: Callable[[], Awaitable[WrittenAnswer]]
    ) -> WrittenAnswer:
        answered = await write()
        if answered.is_repeated:
            self._keep(source, asked, answered.buffers)
        return answered

    async def _written(self, asked: Asked, writing: _Writing) -> WrittenAnswer:
        """Waits for an answer; when the last request has gone, the work ends."""
        writing.waiting_count += 1
        try:
            return await asyncio.shield(writing.task)
        finally:
            writing.waiting_count -= 1
            if not writing.waiting_count and not writing.task.done():
                self._end(asked, writing)
                writing.task.cancel()

    def _end(self, asked: Asked, writing: _Writing) -> None:
        if self._writings.get(asked) is writing:
            del self._writings[asked]

    def _find(self, source: AnswerSource, asked: Asked) -> Buffers | None:
        """Returns the kept answer; None: there is none that still holds."""
        if not source.is_as(self._source):
            self._source = source
            self._kept.clear()
            self._kept_bytes = 0
        return self._kept.get(asked)

    def _keep(self, source: AnswerSource, asked: Asked, written: Buffers) -> None:
        """Keeps an answer, if there is room for it and the facts are still the same."""
        size = sum(map(len, written))
        if source.is_as(self._source) and self._kept_bytes + size <= KEPT_BYTES_MAX:
            self._kept[asked] = written
            self._kept_bytes += size
