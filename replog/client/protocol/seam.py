"""The seam of clients: how a broker is reached.

`replog.client.protocol.connection` does it over TCP, real or simulated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Protocol, TypeVar, runtime_checkable

from replog.rpc.messages import (
    FetchRequest,
    FetchResponse,
    FetchResult,
    Hello,
    ProduceRequest,
    ProduceResponse,
    WatchOffsetsRequest,
)
from replog.rpc.metadata_messages import MetadataUpdate, WatchRequest
from replog.rpc.transport import Stream
from replog.waiting.asks import Asks

A = TypeVar("A")


class Connection(Protocol):
    """A way from a client to one broker.  Opening is lazy: nothing happens before the first call."""

    @property
    def address(self) -> str: ...

    async def call(self, request: Asks[A], *, timeout_ms: int, cluster_id: str = "") -> A: ...

    async def open_fetch(self, hello: Hello) -> Stream[FetchRequest, FetchResponse]:
        """Raises: ConnectionLostError, InconsistentClusterIdError, UnsupportedVersionError: The two cannot talk."""
        ...

    async def close(self) -> None: ...

    def watch_metadata(self, request: WatchRequest) -> AsyncIterator[MetadataUpdate]:
        """Yields what the client does not know yet, then each change, until the connection ends: `MetadataUpdate`s."""
        ...

    def watch_offsets(self, request: WatchOffsetsRequest) -> AsyncIterator[tuple[FetchResult, ...]]:
        """Yields the state of the partitions, then of those that changed, at least each second, until the broker leads none."""
        ...

    async def open_produce(self, hello: Hello) -> Stream[ProduceRequest, tuple[ProduceResponse, ...]]:
        """Greets as `open_fetch` does."""
        ...


@runtime_checkable
class RestingStream(Protocol):
    """A stream whose broker may say for how long it takes up no request: this client is over its quota."""

    @property
    def rests_until_s(self) -> float:
        """The time of the loop, in seconds, until when it does not."""
        ...


class Transport(Protocol):
    """Makes connections of clients.  `purpose` says what for ("data", "control")."""

    def connect(self, address: str, *, purpose: str) -> Connection: ...


@runtime_checkable
class SeededTransport(Transport, Protocol):
    """One where even what clients draw is repeatable: a simulated network."""

    def new_rng(self) -> Random:
        """Returns a seeded generator for one client."""
        ...


@runtime_checkable
class TimedTransport(Transport, Protocol):
    """One that says what time of day it is where its clients are: a simulated network."""

    def wall_ms(self) -> int:
        """Returns milliseconds since 1970."""
        ...
