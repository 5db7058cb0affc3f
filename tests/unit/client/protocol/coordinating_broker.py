"""A broker that coordinates groups, without a connection: what is asked and answered goes through the generated messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from replog.errors import ReplogError, UnsupportedVersionError
from replog.metadata.image import MetadataImage
from replog.protocol.handlers.node import Call, Failure
from replog.protocol.served import SERVED
from replog.wire.primitives import Reader, Writer


def through(message: Any, kind: Any, version: int) -> Any:
    """Returns what the other side reads of a message."""
    writer = Writer()
    message.write(writer, version)
    reader = Reader(memoryview(writer.joined()))
    found = kind.read(reader, version)
    reader.finish()
    return found


class CoordinatingBroker:
    """Answers as a test says, or else by the handlers of a replog broker.

    Args:
        answer: The function that answers a request; None: the handlers, whose coordinator is `coordinate`.
        coordinate: The function that answers one of our own structs, or raises.
        newest: The newest version of each API that it serves, by key; of others all that the client knows.
        missing: The keys of APIs that it does not serve.

    Attributes:
        asked: The requests as the broker reads them, each with its version.
    """

    address = "broker:9092"

    def __init__(
        self,
        answer: Callable[[Any], Any] | None = None,
        *,
        coordinate: Callable[[Any], Any] | None = None,
        newest: Mapping[int, int] | None = None,
        missing: tuple[int, ...] = (),
    ) -> None:
        self.asked: list[tuple[Any, int]] = []
        self.image = MetadataImage()
        self._answer = answer
        self._coordinate = coordinate
        self._newest = newest or {}
        self._missing = missing

    async def version(self, request: Any) -> int:
        if request.API_KEY in self._missing:
            raise UnsupportedVersionError(f"{self.address} serves none")
        newest = self._newest.get(request.API_KEY)
        if self._answer is None:
            newest = next(each for each in SERVED if each.key == request.API_KEY).versions[-1]
        return int(request.VERSIONS[-1] if newest is None else min(newest, request.VERSIONS[-1]))

    async def offers(self, api_key: int) -> bool:
        return api_key not in self._missing

    async def ask(self, request: Any, answer: type[Any], *, timeout_ms: int) -> Any:
        assert timeout_ms > 0
        version = await self.version(type(request))
        api = next(each for each in SERVED if each.key == request.API_KEY)
        read = through(request, api.request, version)
        self.asked.append((read, version))
        if self._answer is not None:
            return through(self._answer(read), answer, version)
        node: Any = self
        try:
            told: Any = await api.handle(node, read, Call(version, "me"))
        except ReplogError as error:
            told = api.refuse(read, Failure(error.code, str(error)))
        return through(told, answer, version)

    async def coordinate(self, _group_id: str, request: Any, _timeout_ms: int | None) -> Any:
        """Answers as the coordinator behind the handlers."""
        assert self._coordinate is not None
        return self._coordinate(request)

    async def coordinate_all(self, request: Any, _timeout_ms: int) -> list[Any]:
        """Answers as all coordinators of this broker."""
        assert self._coordinate is not None
        return [self._coordinate(request)]


def refusing(error: ReplogError) -> Callable[[Any], Any]:
    """Returns a coordinator that refuses."""

    def coordinate(_request: Any) -> Any:
        raise error

    return coordinate
