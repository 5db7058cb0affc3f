"""Waiting before trying again: growing pauses, and the one loop that retries a call until its time is up."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from replog.errors import AuthenticationError, ReplogError, RequestTimedOutError, RetriableError, ThrottledError
from replog.rpc.transport import ConnectionLostError

T = TypeVar("T")

BACKOFF_MS_MIN = 100
BACKOFF_MS_MAX = 500

AUTHENTICATION_PAUSE_S = 5.0
"""Between two attempts of what goes on by itself, where a broker does not let the client in."""


class Backoff:
    """Pauses that double from `min_ms` to `max_ms`, each spread by a fifth either way.

    Why spread: after a broker died, clients that retry in step would arrive in step.
    """

    def __init__(self, rng: random.Random, *, min_ms: float = BACKOFF_MS_MIN, max_ms: float = BACKOFF_MS_MAX) -> None:
        self._rng = rng
        self._min_ms = min_ms
        self._max_ms = max_ms
        self._next_ms = min_ms

    def next_s(self) -> float:
        """Returns the pause to make now, in seconds; the following one is longer."""
        pause_ms = self._next_ms
        self._next_ms = min(self._max_ms, pause_ms * 2)
        return pause_ms * self._rng.uniform(0.8, 1.2) / 1000

    def next_s_after(self, error: ReplogError) -> float:
        """Returns the pause to make after an error, in seconds: a long one where the broker does not let this client in.

        Whoever called has been told; brokers count failed logins, and may lock the user out.
        """
        return AUTHENTICATION_PAUSE_S if isinstance(error, AuthenticationError) else self.next_s()

    def reset(self) -> None:
        """Starts again with the shortest pause, since something worked."""
        self._next_ms = self._min_ms


async def retry(
    attempt: Callable[[int], Awaitable[T]],
    *,
    timeout_ms: int,
    what: str,
    backoff: Backoff,
    final: tuple[type[ReplogError], ...] = (),
) -> T:
    """Calls `attempt` until it returns, with pauses, at least as long as a quota says, for at most `timeout_ms`.

    Args:
        attempt: A function that gets the milliseconds that are left; a RetriableError from it means "try again".
        timeout_ms: The overall limit, milliseconds.
        what: The name of the operation in the error, e.g. "create topic flights".
        backoff: The pauses between two attempts.
        final: The kinds of RetriableError that trying again does not mend here.

    Raises:
        RequestTimedOutError: The time is up; it names the last cause, which is also its `__cause__`.
        ReplogError: Anything that trying again does not mend, from `attempt` as it is.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    cause: ReplogError | None = None
    while (remaining_ms := int((deadline_s - loop.time()) * 1000)) > 0:
        try:
            return await attempt(remaining_ms)
        except RetriableError as error:
            if isinstance(error, final):
                raise
            cause = telling(cause, error)
            throttled_s = error.throttle_time_ms / 1000 if isinstance(error, ThrottledError) else 0.0
        pause_s = max(throttled_s, backoff.next_s())
        await asyncio.sleep(max(0.0, min(pause_s, deadline_s - loop.time())))
    raise timed_out(what, timeout_ms, cause) from cause


def telling(before: ReplogError | None, error: ReplogError) -> ReplogError:
    """Returns the cause that says more: what a node answered, rather than that another one cannot be reached."""
    is_answer = before is not None and not isinstance(before, ConnectionLostError)
    return before if before is not None and is_answer and isinstance(error, ConnectionLostError) else error


def timed_out(what: str, timeout_ms: int, cause: BaseException | None) -> RequestTimedOutError:
    """Returns the error at the end of all retries; `cause` is the last thing that went wrong, None when nothing did."""
    reason = f"{type(cause).__name__}: {cause}" if cause is not None else "no answer"
    return RequestTimedOutError(f"{what}: no success within {timeout_ms} ms. Last cause: {reason}")
