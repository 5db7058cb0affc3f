"""The same requests to a real Kafka and to a replog broker: their answers field by field, less what is explained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from uuid import UUID

from brokers import Broker
from msgspec import Struct
from msgspec.structs import asdict
from raw_client import RawClient

from tools.kafka_definitions import snake_case
from tools.kafka_private_fields import PRIVATE_FIELDS

EXPLAINED: Mapping[str, str] = {
    "cluster_id": "each cluster has one of its own",
    "port": "each broker has one of its own",
    "error_message": "texts are our own, with the next step; that there is one where something failed is compared below",
    "batch_index_error_message": "as error_message",
    "request_error_code": "a tagged field of our own, for our clients",
    "named_topic_id": "as request_error_code",
    "commit_timestamp": "as request_error_code",
}
"""Fields that differ whenever they are told, and why."""

UNKNOWN_ID = UUID(int=0xDEADBEEF << 64)
CLOSED = "closed"
"""In the place of an answer: the connection was closed without one."""

Question: TypeAlias = Any
"""A request, or a function that makes it for a `Side`."""


@dataclass(slots=True)
class Side:
    """One of the two brokers.

    Attributes:
        broker: The broker.
        ids: The topics by name.
    """

    broker: Broker
    ids: dict[str, UUID] = field(default_factory=dict)
    _client: RawClient | None = None

    @property
    def name(self) -> str:
        """What failures call it."""
        return self.broker.name

    def client(self) -> RawClient:
        """The connection in use, a new one where the last was closed."""
        if self._client is None:
            self._client = RawClient(self.broker.servers)
        return self._client

    def hang_up(self) -> None:
        """Ends the connection in use."""
        if self._client is not None:
            self._client.connection.close()
            self._client = None

    def answer(self, question: Question, version: int, answer: type[Any], read_as: int | None = None) -> Any:
        """Returns the answer in plain values, or CLOSED."""
        client = self.client()
        client.send(question(self) if callable(question) else question, version)
        try:
            response = client.receive(answer, version if read_as is None else read_as)
        except (EOFError, ConnectionResetError):
            self.hang_up()
            return CLOSED
        return self.plain(response)

    def answer_to_bytes(self, data: bytes) -> str:
        """Returns the answer to bytes on a connection of their own in hex, or CLOSED."""
        client = RawClient(self.broker.servers)
        try:
            client.connection.sendall(data)
            return client.frame().hex()
        except (EOFError, ConnectionResetError, BrokenPipeError):
            return CLOSED
        finally:
            client.connection.close()

    def plain(self, value: Any) -> Any:
        """Returns a message as dicts and lists, topics by name where it has their ids."""
        if isinstance(value, Struct):
            own = private_names(type(value))
            return {name: self.plain(part) for name, part in asdict(value).items() if name not in own}
        if isinstance(value, list):
            return sorted((self.plain(part) for part in value), key=_place)
        if isinstance(value, UUID):
            return next((f"id of {name}" for name, known in self.ids.items() if known == value), str(value))
        return bytes(value).hex() if isinstance(value, memoryview) else value


def private_names(cls: type) -> set[str]:
    """Returns the tagged fields of ours in a struct, of which Kafka's brokers tell nothing."""
    message, _, struct = cls.__qualname__.partition(".")
    return {snake_case(name) for name, _, _ in PRIVATE_FIELDS.get(message, {}).get(struct, ())}


class Sides:
    """A real Kafka and a replog broker, asked the same.

    Args:
        kafka: The real one.
        ours: The replog broker.
    """

    def __init__(self, kafka: Side, ours: Side) -> None:
        self.kafka = kafka
        self.ours = ours
        self._topics = 0

    def __iter__(self) -> Iterator[Side]:
        return iter((self.kafka, self.ours))

    def topic(self, partitions: int = 1, **configs: object) -> str:
        """Creates a topic on both; configurations are given with underscores for dots.  Returns its name."""
        self._topics += 1
        name = f"topic-{self._topics}"
        texts = {key.replace("_", "."): str(value) for key, value in configs.items()}
        for side in self:
            side.ids[name] = side.broker.create(name, partitions, texts)
        return name

    def same(
        self,
        question: Question,
        version: int,
        answer: type[Any],
        *,
        beside: Iterable[str] = (),
        read_as: int | None = None,
    ) -> Any:
        """Asks both, fails where the answers differ, and returns ours.

        Args:
            question: The request, or a function that makes it for a side.
            version: The version of the request.
            answer: The class of the answers.
            beside: The names of fields that differ here too; the caller says why.
            read_as: The version of the answers where it is not that of the request.
        """
        theirs, ours = (side.answer(question, version, answer, read_as) for side in self)
        found = list(differences(theirs, ours, {*EXPLAINED, *beside}))
        assert found == [], f"version {version}: {found}"
        if version == answer.VERSIONS[-1]:  # no field is left out
            assert list(untold(ours)) == []
        return ours

    def send(self, question: Question, version: int) -> None:
        """Sends to both what has no answer."""
        for side in self:
            side.client().send(question(side) if callable(question) else question, version)

    def hang_up(self) -> None:
        """Ends the connections to both."""
        for side in self:
            side.hang_up()


PLACES = (
    *("name", "topic_id", "partition_index", "index", "node_id", "api_key"),
    *("entity", "entity_type", "key", "topic", "resource_name", "group_id"),
)


def _place(part: Any) -> tuple[str, ...]:
    """Where a part of a list stands: clients look for topics, partitions and brokers by these, in any order."""
    named = part if isinstance(part, dict) else {}
    return tuple(str(named.get(name)) for name in PLACES)


def differences(theirs: Any, ours: Any, explained: set[str], path: str = "") -> Iterator[str]:
    """Yields where two plain messages differ, but in fields that are explained."""
    if isinstance(theirs, dict) and isinstance(ours, dict) and theirs.keys() == ours.keys():
        for name in theirs.keys() - explained:
            yield from differences(theirs[name], ours[name], explained, f"{path}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, pair in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(*pair, explained, f"{path}[{number}]")
    elif theirs != ours:
        yield f"{path}: Kafka {theirs!r}, replog {ours!r}"


def untold(message: Any, path: str = "") -> Iterator[str]:
    """Yields where our answer has an error and a field for its text, and no text."""
    if isinstance(message, dict):
        if message.get("error_code") and not message.get("error_message", "-"):
            yield f"{path} fails with {message['error_code']} and says nothing"
        for name, part in message.items():
            yield from untold(part, f"{path}.{name}")
    elif isinstance(message, list):
        for number, part in enumerate(message):
            yield from untold(part, f"{path}[{number}]")


@contextmanager
def sides(kafka: Side, ours: Side) -> Iterator[Sides]:
    """Both, connected for as long as the block runs."""
    both = Sides(kafka, ours)
    try:
        yield both
    finally:
        both.hang_up()
