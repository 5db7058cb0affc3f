"""Members of a group restarted one after the other under load, with coordinators killed meanwhile: what is handled, and how often.

Members are processes (`group_member`).  Each restart is one of `RESTARTS`; after it everybody has to have partitions again, and the
records of every partition have to go on being handled.  Whatever is handled twice is counted with the restart before it.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from replog.cluster.node_spec import ConfigValue
from replog.errors import BrokerNotAvailableError
from replog.metadata.topic_names import OFFSETS_TOPIC
from replog_chaos.fault import Scene, Target, until
from replog_chaos.load import Load
from replog_chaos.scenes import prepared

TOPIC: Final = "chaos-orders"
GROUP: Final = "chaos"
MEMBERS: Final = 3
PARTITIONS: Final = 6
NODES: Final = 3
PATIENCE_S: Final = 120.0
REBALANCE_S: Final = 0.1
"""After a member has been started, when a coordinator is killed in the middle of a rebalance."""

CONFIG: Final[dict[str, ConfigValue]] = {
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 500,
    "offsets.topic.num.partitions": 1,
}

STOPPED, KILLED = "member stopped", "member killed"
IN_REBALANCE, IN_COMMIT = "coordinator killed in a rebalance", "coordinator killed in a commit"
WHY: Final = {
    STOPPED: "it commits and leaves: nothing",
    KILLED: "what it has handled since its last commit",
    IN_REBALANCE: "what was handled since the last commit, where a partition moves while nobody keeps commits",
    IN_COMMIT: "nobody loses a partition for what a broker does: nothing, unless the member that is stopped cannot commit",
}
"""What may be handled twice after each."""

RESTARTS: Final = (STOPPED, KILLED, STOPPED, KILLED, IN_REBALANCE, STOPPED, KILLED, STOPPED, KILLED, IN_COMMIT)

Place = tuple[int, int]


class Restart(Struct):
    """One restart.

    Attributes:
        kind: One of `RESTARTS`.
        again: The records that were handled once more after it.
        settled_s: How long it took until all was as it has to be.
    """

    kind: str
    again: int = 0
    settled_s: float = 0.0


class GroupOutcome(Struct):
    """What has become of a run.

    Attributes:
        acknowledged: The number of records that were acknowledged.
        lost: The places of those that nobody has handled.
        restarts: The restarts in order.
    """

    acknowledged: int = 0
    lost: list[Place] = field(default_factory=list[Place])
    restarts: list[Restart] = field(default_factory=list[Restart])

    def lines(self) -> list[str]:
        """Returns what people are told."""
        found = [
            f"{len(self.restarts)} restarts, {self.acknowledged} records acknowledged, {len(self.lost)} not handled."
        ]
        for kind in dict.fromkeys(RESTARTS):
            counts = [each.again for each in self.restarts if each.kind == kind]
            slowest_s = max((each.settled_s for each in self.restarts if each.kind == kind), default=0.0)
            if counts:
                found.append(
                    f"{kind:<34} {len(counts):4d} times, handled twice {sum(counts)} in all, at most {max(counts)}, "
                    f"settled within {slowest_s:.1f} s ({WHY[kind]})"
                )
        return found


class Member:
    """One member over all its lives."""

    def __init__(self, folder: Path, number: int, command: tuple[str, ...]) -> None:
        self._folder = folder
        self._number = number
        self._command = command
        self._lives = 0
        self._read_bytes = 0
        self._process: Process | None = None
        self.held: frozenset[int] = frozenset()

    async def start(self) -> None:
        """Starts a process, which writes to a file of its own."""
        self._lives += 1
        self._read_bytes, self.held = 0, frozenset()
        with self._path.open("wb") as out:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdout=out, stderr=asyncio.subprocess.DEVNULL
            )

    async def end(self, number: signal.Signals) -> list[Place]:
        """Ends the process; returns what it has handled and nobody has been told yet."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
                raise TimeoutError(
                    f"member {self._number} does not end within {PATIENCE_S:g} s of {number.name}"
                ) from None
        return self.news()

    def news(self) -> list[Place]:
        """Returns what it has handled since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._read_bytes)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        found: list[Place] = []
        for line in whole.decode().splitlines():
            word, *numbers = line.split()
            if word == "has":
                self.held = frozenset(map(int, numbers))
            else:
                found.append((int(numbers[0]), int(numbers[1])))
        return found

    def check_running(self) -> None:
        """Raises BrokerNotAvailableError: It has ended by itself."""
        if self._process is not None and self._process.returncode is not None:
            raise BrokerNotAvailableError(
                f"member {self._number} ended by itself with status {self._process.returncode}"
            )

    @property
    def _path(self) -> Path:
        return self._folder / f"member-{self._number}.{self._lives}.txt"


class GroupRun:
    """The members, and what they have handled."""

    def __init__(self, target: Target, members: list[Member], load: Load) -> None:
        self.outcome = GroupOutcome()
        self._target = target
        self._members = members
        self._load = load
        self._handled: Counter[Place] = Counter()

    def count(self, places: list[Place]) -> None:
        """Counts records as handled."""
        for place in places:
            self._handled[place] += 1
            if self._handled[place] > 1 and self.outcome.restarts:
                self.outcome.restarts[-1].again += 1

    def look(self) -> None:
        """Takes in what members have written."""
        for member in self._members:
            self.count(member.news())

    async def restart(self, number: int) -> Restart:
        """Restarts the next member, and waits until all is as it has to be."""
        member, loop = self._members[number % MEMBERS], asyncio.get_running_loop()
        one, began_s = Restart(RESTARTS[number % len(RESTARTS)]), loop.time()
        self.look()
        self.outcome.restarts.append(one)
        dead: int | None = None
        if one.kind == IN_COMMIT:
            dead = await self._kill_coordinator()
        self.count(await member.end(signal.SIGKILL if one.kind == KILLED else signal.SIGTERM))
        await member.start()
        if one.kind == IN_REBALANCE:
            await asyncio.sleep(REBALANCE_S)
            dead = await self._kill_coordinator()
        if dead is not None:
            self._target.cluster.start_node(dead)
            await self._target.cluster.wait_until_ready()
            await self._target.admin.wait_until_in_sync(OFFSETS_TOPIC)
        await self.settle()
        one.settled_s = loop.time() - began_s
        return one

    async def _kill_coordinator(self) -> int:
        topic = (await self._target.admin.describe_topics([OFFSETS_TOPIC]))[OFFSETS_TOPIC]
        leader = topic.partitions[0].leader
        if leader < 0:
            raise BrokerNotAvailableError(f"{OFFSETS_TOPIC} has no leader")
        await self._target.cluster.kill(leader)
        return leader

    async def settle(self) -> None:
        """Waits until every member has partitions, together all, and then until all that has been acknowledged is handled.

        Of each partition that is more than its former reader had: whoever reads it now has passed what is handled twice, so that
        it is counted with the restart that it is of.
        """
        async with asyncio.timeout(PATIENCE_S):
            await until(self._is_shared)
            due = {(one.partition, one.offset) for one in self._load.acknowledged}
            await until(lambda: self._is_settled(due))

    async def _is_shared(self) -> bool:
        for member in self._members:
            member.check_running()
        self.look()
        held = [member.held for member in self._members]
        return all(held) and sorted(number for each in held for number in each) == list(range(PARTITIONS))

    async def _is_settled(self, due: set[Place]) -> bool:
        return await self._is_shared() and due <= self._handled.keys()

    def judge(self) -> GroupOutcome:
        """Returns what has become of all records."""
        acknowledged = {(one.partition, one.offset) for one in self._load.acknowledged}
        self.outcome.acknowledged = len(acknowledged)
        self.outcome.lost = sorted(acknowledged - self._handled.keys())
        return self.outcome


async def run_groups(client: str, *, restarts: int, rate_per_s: float, say: Callable[[str], None]) -> GroupOutcome:
    """Restarts members of a group on a new cluster, which is gone afterwards.

    Args:
        client: The client that members read with: one of `group_member.CLIENTS`.
        restarts: The number of restarts, of one member after the other.
        rate_per_s: The records sent in a second.
        say: The function that is told what happens.

    Raises:
        TimeoutError: The group did not recover.
        ReplogError: The cluster did not come up, or a member has ended by itself.
    """
    folder = Path(tempfile.mkdtemp(prefix="replog-chaos-groups-"))
    try:
        async with AsyncExitStack() as stack:
            target = await stack.enter_async_context(prepared(Scene.PLAIN, folder / "cluster", NODES, CONFIG, TOPIC))
            await target.admin.create_topic(TOPIC, PARTITIONS, NODES, {"min.insync.replicas": 2})
            await target.admin.wait_until_in_sync(TOPIC)
            arguments = (client, target.bootstrap_servers, GROUP, TOPIC)
            command = (sys.executable, "-m", "replog_chaos.group_member", *arguments)
            members = [Member(folder, number, command) for number in range(MEMBERS)]
            for member in members:
                await member.start()
                stack.push_async_callback(member.end, signal.SIGKILL)
            async with Load(target.bootstrap_servers, TOPIC, PARTITIONS, rate_per_s) as load:
                run = GroupRun(target, members, load)
                await run.settle()
                for number in range(restarts):
                    one = await run.restart(number)
                    say(f"{number + 1}: {one.kind}: settled within {one.settled_s:.1f} s, handled twice {one.again}")
            await run.settle()
            return run.judge()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
