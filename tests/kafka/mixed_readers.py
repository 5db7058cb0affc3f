"""Members of one group by several clients, each in a process of its own, and what was written for them."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from pathlib import Path

from group_processes import PARTITIONS, Member, member, produce, running, until


class Readers:
    """Members that have run, and what was written for them.

    A member tells of a record once it has committed it.  As its commits are refused once another one may read the partition,
    one that is told twice was read by two at a time.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._topic = topic
        self.running: list[Member] = []
        self.ended: list[Member] = []
        self.written: set[str] = set()

    def end(self, one: Member) -> None:
        """Kills a member."""
        one.kill()
        self.running.remove(one)
        self.ended.append(one)

    def share_all(self) -> None:
        """Waits until each member has something, and all of it is somebody's."""
        until(lambda: sorted(each for one in self.running for each in one.assigned) == list(range(PARTITIONS)))
        until(lambda: all(one.assigned for one in self.running))

    def write(self, name: str) -> set[str]:
        """Writes records to all partitions; returns them."""
        values = {f"{name}-{number}" for number in range(4 * PARTITIONS)}
        produce(self._servers, self._topic, *sorted(values))
        self.written |= values
        return values

    def read(self, name: str) -> None:
        """Writes records, and waits until each has been read, by one member."""
        self.write(name)
        members = (*self.running, *self.ended)
        until(lambda: set().union(*(one.read for one in members)) == self.written)
        told = [value for one in members for value in one.read]
        assert len(told) == len(self.written), sorted(told)


def started(servers: str, folder: Path, client: str, group: str, topic: str) -> AbstractContextManager[Member]:
    """A member by a client: "confluent", "confluent-eager", or one of `mixed_member.py`."""
    if client.startswith("confluent"):
        return member(servers, folder, client, group, "eager" if client == "confluent-eager" else "consumer", topic)
    program, name = Path(__file__).with_name("mixed_member.py"), f"{client}-{len(list(folder.iterdir()))}"
    return running([sys.executable, str(program), servers, group, client, topic], folder, name)
