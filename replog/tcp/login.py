"""The login of a client: what a connection asks before, and now and then after, it takes the client's requests up.

A connection without a login that has succeeded has no `Caller`, so that nothing of it can reach a handler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from msgspec import Struct

from replog.access.principal import Principal
from replog.tcp.answers import Answer


class LoginStep(Struct, frozen=True):
    """What a frame of a login leads to.

    Attributes:
        answer: What the client is answered; None: nothing.
        principal: Who the client is, where that is known now, or still.
        refusal: Why the client is not believed: the connection ends behind the answer; "": it goes on.
    """

    answer: Answer | None = None
    principal: Principal | None = None
    refusal: str = ""


class Login(Protocol):
    """The login of one connection, for as long as that lasts.

    Attributes:
        frame_bytes_max: The size of the largest frame before it has succeeded.
        failure_delay_s: The seconds after which a client hears that it is not believed.
    """

    @property
    def frame_bytes_max(self) -> int: ...

    @property
    def failure_delay_s(self) -> float: ...

    @property
    def has_run_out(self) -> bool:
        """Whether it held for a time that is over."""
        ...

    def takes(self, frame: memoryview) -> bool:
        """Whether a frame of a client that is known is one of the login: it says anew who it is (KIP-368)."""
        ...

    async def step(self, frame: memoryview) -> LoginStep:
        """Takes in a frame.

        Raises:
            MalformedFrameError: It is no request.
        """
        ...


MakeLogin: TypeAlias = Callable[[], Login]
"""Makes the login of a new connection."""
