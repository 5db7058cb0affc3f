"""Brokers that questions are put to without a connection: what is asked and answered goes through the generated messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from replog.access.authorizer import OPEN
from replog.access.rights import Rights
from replog.errors import ReplogError, UnsupportedVersionError
from replog.metadata.image import MetadataImage
from replog.protocol.handlers.node import Failure
from replog.protocol.served import SERVED
from replog.wire.primitives import Reader, Writer
from tests.unit.kafka.rights_kit import a_call

NOW_MS = 1_000_000


def through(message: Any, kind: Any, version: int) -> Any:
    """Returns what the other side reads of a message in a version; all of it, or the test fails."""
    writer = Writer()
    message.write(writer, version)
    reader = Reader(memoryview(writer.joined()))
    read = kind.read(reader, version)
    reader.finish()
    return read


class ScriptedBroker:
    """Answers as it is told.

    Args:
        answers: The answers by the class of the request; the last one is kept.
        versions: The newest versions by the class of the request; all that there are where none is named.

    Attributes:
        features: The levels of the cluster's features.
        asked: The requests, as a broker reads them.
    """

    address = "broker:9092"

    def __init__(
        self, answers: Mapping[type[Any], Any] | None = None, versions: Mapping[type[Any], int] | None = None
    ) -> None:
        self.asked: list[Any] = []
        self.features: dict[str, int] = {}
        self._answers = answers or {}
        self._versions = versions or {}

    async def version(self, request: Any) -> int:
        return self._versions.get(request, request.VERSIONS[-1])

    async def offers(self, api_key: int) -> bool:
        return api_key < 20_000

    async def feature(self, name: str) -> int:
        return self.features.get(name, 0)

    async def ask(self, request: Any, answer: type[Any], *, timeout_ms: int) -> Any:
        assert timeout_ms > 0
        version = await self.version(type(request))
        received = through(request, self.kind_of(request), version)
        self.asked.append(received)
        return through(await self.answer(received, version), answer, version)

    def kind_of(self, request: Any) -> Any:
        """Returns the class that a broker reads a request as."""
        return type(request)

    async def answer(self, request: Any, _version: int) -> Any:
        """Returns the answer to a request."""
        return self._answers[type(request)]


async def by_handlers(node: Any, request: Any, version: int) -> Any:
    """Returns the answer of a replog broker's handlers, which see `node`."""
    (api,) = (one for one in SERVED if one.load().request is type(request))
    try:
        return await api.load().handle(node, request, a_call(version, "me"))
    except ReplogError as error:
        return api.load().refuse(request, Failure(error.code, str(error)))


class MirrorBroker(ScriptedBroker):
    """Answers by the handlers of a replog broker, whose node gives a struct back or raises an error.

    Args:
        outcomes: What the node answers, one call after the other.
        versions: As of `ScriptedBroker`.

    Attributes:
        structs: What the handlers asked the node.
        within_ms: The time that they gave it for the last.
    """

    node_id, cluster_id, creates_missing_topics, authorizer = 1, "c", False, OPEN

    def __init__(self, outcomes: Sequence[Any], versions: Mapping[type[Any], int] | None = None) -> None:
        super().__init__(versions=versions)
        self.structs: list[Any] = []
        self.within_ms = 0
        self._outcomes = list(outcomes)

    async def answer(self, request: Any, version: int) -> Any:
        return await by_handlers(self, request, version)

    async def change(self, request: Any, timeout_ms: int, rights: Rights | None = None) -> Any:
        """Answers as the controller."""
        self.structs.append(request)
        self.within_ms = timeout_ms
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, ReplogError):
            raise outcome
        return outcome

    call = change

    def configs(self, *_resource: Any) -> tuple[()]:
        """The configurations of a topic that was created."""
        return ()

    def wall_ms(self) -> int:
        """The time."""
        return NOW_MS


class CoordinatingBroker(ScriptedBroker):
    """Coordinates groups: answers as a test says, or else by the handlers of a replog broker.

    Args:
        answer: The function that answers a request; None: the handlers, whose coordinator is `coordinate`.
        coordinate: The function that answers one of our own structs, or raises.
        newest: The newest version of each API that it serves, by key; of others all that the client knows.
        missing: The keys of APIs that it does not serve.

    Attributes:
        asked: The requests as the broker reads them, each with its version.
    """

    def __init__(
        self,
        answer: Callable[[Any], Any] | None = None,
        *,
        coordinate: Callable[[Any], Any] | None = None,
        newest: Mapping[int, int] | None = None,
        missing: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
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

    def kind_of(self, request: Any) -> Any:
        return next(each for each in SERVED if each.key == request.API_KEY).load().request

    async def answer(self, request: Any, version: int) -> Any:
        self.asked[-1] = (request, version)
        return await by_handlers(self, request, version) if self._answer is None else self._answer(request)

    async def coordinate(self, _group_id: str, request: Any, _timeout_ms: int | None) -> Any:
        """Answers as the coordinator behind the handlers."""
        assert self._coordinate is not None
        return self._coordinate(request)

    async def coordinate_all(self, request: Any, timeout_ms: int) -> list[Any]:
        """Answers as all coordinators of this broker."""
        return [await self.coordinate("", request, timeout_ms)]


def refusing(error: ReplogError) -> Callable[[Any], Any]:
    """Returns a coordinator that refuses."""

    def coordinate(_request: Any) -> Any:
        raise error

    return coordinate
