"""What a question of ours needs of the broker that it is put to.

`replog.client.protocol.questions` says for each question of a client which requests of Kafka's protocol it becomes, and what
their answers mean.  The questions and answers themselves are plain structs, the same for every broker and version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from replog.protocol.private import PrivateRequest
from replog.wire.primitives import Reader, Writer


class RequestMessage(Protocol):
    """A request of Kafka's protocol, as its class is generated."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[range]
    FLEXIBLE_FROM: ClassVar[int]

    def write(self, w: Writer, version: int) -> None: ...


class AnswerMessage(Protocol):
    """The answer to a request, as its class is generated."""

    FLEXIBLE_FROM: ClassVar[int]

    @classmethod
    def read(cls, r: Reader, version: int) -> Any: ...


A = TypeVar("A", bound=AnswerMessage)


class Broker(Protocol):
    """One broker, as far as a question goes."""

    @property
    def address(self) -> str:
        """The host:port of the broker, for messages."""
        ...

    async def version(self, request: type[RequestMessage]) -> int:
        """Returns the newest version of an API that the broker and this client know.

        Raises:
            UnsupportedVersionError: There is none; the text names the API and what the broker serves.
            ConnectionLostError: The broker cannot be reached.
        """
        ...

    async def offers(self, api_key: int) -> bool:
        """Whether the broker serves an API; raises ConnectionLostError where it cannot be reached."""
        ...

    async def feature(self, name: str) -> int:
        """Returns the level of a feature that the cluster has settled on; 0 where the broker tells none."""
        ...

    async def ask(self, request: RequestMessage | PrivateRequest, answer: type[A], *, timeout_ms: int) -> A:
        """Sends a request in that version; returns the answer.

        Raises:
            UnsupportedVersionError: The broker does not serve the API.
            ConnectionLostError: The broker cannot be reached, or did not answer within `timeout_ms`.
            MalformedFrameError: The answer is none.
        """
        ...


Question: TypeAlias = Callable[[Broker, Any, int], Awaitable[Any]]
"""Puts a question to a broker: the broker, the question, and the time for the answer in ms.  Returns the answer; raises the
broker's refusal as the error of its code, with its text."""
