"""Operations that wait for something to happen to a partition, or for time to pass (docs/KAFKA.md 4.9).

The broker keeps its waiting fetches here.  An operation is watched under every partition it touches; when something
happens to a partition (an append, a higher high watermark, a truncation, a lost leadership), the broker walks that
partition's candidates, tests each and completes those that are ready.  An operation that expires is answered with what there is.

Deadlines sit in `Deadlines`, not in Kafka's hierarchical timing wheel: one task owns the structure and tells when it wants
to be woken, so that nothing has to turn.  `python -m bench run deadlines` shows the cost of both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from msgspec import Struct

from replog.errors import InvariantViolationError, ThrottledError
from replog.waiting.deadlines import Deadlines

T = TypeVar("T")


class Waiting(Struct, Generic[T], frozen=True):
    """One waiting operation."""

    operation_id: int
    keys: tuple[Hashable, ...]
    deadline_ms: int
    payload: T


class Purgatory(Generic[T]):
    """Waiting operations by id, by key and by deadline.

    The caller tests its condition before adding *and* has no await in between (one owner), so nothing is missed.

    Invariants:
        - an operation leaves exactly once: through `complete` or `expire`;
        - never more than `operations_max` wait.
    """

    def __init__(self, *, operations_max: int) -> None:
        self._operations_max = operations_max
        self._operations: dict[int, Waiting[T]] = {}
        self._by_key: dict[Hashable, dict[int, None]] = {}
        self._deadlines = Deadlines[int]()

    def __len__(self) -> int:
        return len(self._operations)

    def add(self, operation_id: int, keys: Iterable[Hashable], deadline_ms: int, payload: T) -> None:
        """Lets an operation wait under `keys` until `deadline_ms`.

        Raises:
            ThrottledError: `operations_max` operations wait already.
            InvariantViolationError: `operation_id` waits already.
        """
        if operation_id in self._operations:
            raise InvariantViolationError(f"operation {operation_id} waits already")
        if len(self._operations) >= self._operations_max:
            raise ThrottledError(f"{self._operations_max} operations wait already; try again later")
        operation = Waiting(operation_id, tuple(dict.fromkeys(keys)), deadline_ms, payload)
        self._operations[operation_id] = operation
        for key in operation.keys:
            self._by_key.setdefault(key, {})[operation_id] = None
        self._deadlines.add(operation_id, deadline_ms)

    def check(self, key: Hashable) -> tuple[Waiting[T], ...]:
        """Returns the operations that wait under `key`, oldest first.  They stay until completed."""
        return tuple(self._operations[operation_id] for operation_id in self._by_key.get(key, ()))

    def complete(self, operation_id: int) -> Waiting[T] | None:
        """Removes an operation; None when it has left already (its answer is on the way)."""
        operation = self._remove(operation_id)
        if operation is not None:
            self._deadlines.discard(operation_id)
        return operation

    def expire(self, now_ms: int) -> list[Waiting[T]]:
        """Removes and returns the operations whose deadline has come, earliest first."""
        removed = (self._remove(operation_id) for operation_id in self._deadlines.pop_expired(now_ms))
        return [operation for operation in removed if operation is not None]

    def next_deadline_ms(self) -> int | None:
        """Returns the earliest deadline; None when nothing waits."""
        return self._deadlines.next_deadline_ms()

    def _remove(self, operation_id: int) -> Waiting[T] | None:
        operation = self._operations.pop(operation_id, None)
        if operation is None:
            return None
        for key in operation.keys:
            watchers = self._by_key[key]
            del watchers[operation_id]
            if not watchers:
                del self._by_key[key]
        return operation
