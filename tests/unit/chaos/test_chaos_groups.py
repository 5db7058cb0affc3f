"""With which restart the chaos of groups counts what is handled twice, without processes."""

from __future__ import annotations

from typing import Any, NamedTuple

from replog_chaos.groups import KILLED, STOPPED, GroupRun, Place, Restart


class Acknowledged(NamedTuple):
    partition: int
    offset: int


class Load:
    """Records of partition 0."""

    def __init__(self) -> None:
        self.acknowledged = [Acknowledged(0, 5)]


class Reader:
    """A member that has its partitions from the second look on; partition 0 goes on in the looks after that."""

    def __init__(self, load: Load, *partitions: int) -> None:
        self.held: frozenset[int] = frozenset()
        self._load = load
        self._partitions = frozenset(partitions)
        self._looks = 0

    def check_running(self) -> None:
        """Runs."""

    def news(self) -> list[Place]:
        self._looks += 1
        if self._looks == 2:
            self.held = self._partitions
            self._load.acknowledged += [Acknowledged(0, 6)] * (0 in self._partitions)
        return [(0, self._looks + 2)] if 0 in self._partitions and self._looks in {3, 4} else []


async def test_what_is_handled_twice_is_counted_with_the_restart_before_it() -> None:
    load: Any = Load()
    members: list[Any] = [Reader(load, 0, 1), Reader(load, 2, 3), Reader(load, 4, 5)]
    target: Any = None
    run = GroupRun(target, members, load)
    run.count([(0, 5)])
    run.outcome.restarts.append(Restart(KILLED))
    await run.settle()
    run.outcome.restarts.append(Restart(STOPPED))
    run.look()
    assert [each.again for each in run.outcome.restarts] == [1, 0]
