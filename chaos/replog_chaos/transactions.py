"""Transactions under faults: writers, chains of consuming and producing, readers; at the end the checker judges.

Clients are processes (`transaction_client`).  They are killed, stopped for longer than a transaction may be open, and fenced by a twin
with the same transactional id; brokers suffer the faults of `PROCESS_FAULTS`, where they are ours.  After each fault every client
has to get on.  At the end nothing may be open: each transactional id is taken over once more, all is read, and compared
(`replog_chaos.transaction_history`).
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, field

from replog.cluster.node_spec import ConfigValue
from replog.errors import BrokerNotAvailableError, RequestTimedOutError
from replog.testing.history import Anomaly
from replog_chaos.fault import Fault, Scene, Target
from replog_chaos.process_faults import PROCESS_FAULTS
from replog_chaos.scenes import prepared
from replog_chaos.transaction_client import TRANSACTION_MS, producer_of, reader_of
from replog_chaos.transaction_history import TransactionHistory, TransactionOutcome
from replog_chaos.transaction_lines import Life, count_of, history_of, may_start_again

INPUTS: Final = "chaos-inputs"
WRITERS, CHAINS, READERS = 3, 2, 2
PARTITIONS: Final = 4
NODES: Final = 3
PATIENCE_S: Final = 120.0
QUIET_S: Final = 1.0
LOOK_S: Final = 0.1
MORE: Final = 3
"""How many more transactions each client has to commit after a fault."""

SILENCE_S: Final = 30.0

CONFIG: Final[dict[str, ConfigValue]] = {
    "offsets.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.session.timeout.ms": 6_000,
    "group.consumer.heartbeat.interval.ms": 500,
}

PROGRAMS: Final[Mapping[str, str]] = {
    "librdkafka": "replog_chaos.transaction_client",
    "replog": "replog_chaos.own_transaction_client",
}
"""The programs of the clients, by whose clients they use."""


class TransactionChaos(Struct):
    """What has happened.

    Attributes:
        faults: The faults, in order, and how long every client took to get on after each.
        lines: How many lines of each kind the clients wrote.
        transactions: How many transactions ended how.
        inputs: The records that were to be passed on.
        anomalies: What was not as promised.
    """

    faults: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    lines: Mapping[str, int] = field(default_factory=dict[str, int])
    transactions: Mapping[str, int] = field(default_factory=dict[str, int])
    inputs: int = 0
    anomalies: tuple[Anomaly, ...] = ()

    def text(self) -> list[str]:
        """Returns what people are shown."""
        ends = ", ".join(f"{count:,} {outcome}" for outcome, count in self.transactions.items())
        return [
            f"{len(self.faults)} faults, transactions: {ends}",
            f"{self.lines.get('fenced', 0)} producers fenced, {self.lines.get('stuck', 0)} stuck in librdkafka",
            f"{self.inputs:,} inputs; {self.lines.get('read', 0):,} records read",
            *map(str, self.anomalies[:20]),
            f"{len(self.anomalies)} anomalies",
        ]


class TransactionProcess:
    """One client over all its lives.

    Args:
        folder: Where its processes write.
        name: Its name; the transactional id, if it has one.
        program: Its program, one of `PROGRAMS`.
        arguments: The arguments of its program.
    """

    def __init__(self, folder: Path, name: str, program: str, *arguments: str) -> None:
        self.name = name
        self._folder = folder
        self._command = (sys.executable, "-m", program, *arguments)
        self._paths: list[Path] = []
        self._processes: list[Process] = []

    async def start(self) -> None:
        """Starts a process beside those that run; the latest is the one that counts."""
        path = self._folder / f"{self.name}.{len(self._paths)}.txt"
        self._paths.append(path)
        with path.open("wb") as out, path.with_suffix(".err").open("wb") as errors:
            process = await asyncio.create_subprocess_exec(*self._command, stdout=out, stderr=errors)
        self._processes.append(process)

    async def end(self, number: signal.Signals) -> None:
        """Ends all its processes."""
        for process in self._processes:
            await _end(process, number)

    async def fenced(self) -> None:
        """Waits until all processes before the latest have ended."""
        async with asyncio.timeout(PATIENCE_S):
            for process in self._processes[:-1]:
                await process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to those of its processes that run."""
        for process in self._processes:
            if process.returncode is None:
                process.send_signal(number)

    async def revive(self) -> None:
        """Starts it again if it was fenced, or stuck in a call.

        Raises:
            BrokerNotAvailableError: It has ended by itself for another reason.
        """
        if self._processes[-1].returncode is None:
            return
        if not may_start_again(self.lives()[-1]):
            errors = self._paths[-1].with_suffix(".err").read_text(errors="replace")
            raise BrokerNotAvailableError(
                f"{self.name} ended with status {self._processes[-1].returncode}: {errors[-2000:]}"
            )
        await self.start()

    def lives(self) -> list[Life]:
        """Returns what its processes have written so far, whole lines only."""
        texts = [path.read_text(errors="replace") for path in self._paths]
        return [Life(self.name, text[: text.rfind("\n") + 1].splitlines()) for text in texts]

    def progress(self) -> int:
        """Returns how many transactions it has committed, or records it has read."""
        counts = count_of(self.lives())
        return counts.get("end committed", 0) + counts.get("read", 0)


async def _end(process: Process, number: signal.Signals) -> None:
    if process.returncode is None:
        process.send_signal(number)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise RequestTimedOutError(f"a client does not end within {PATIENCE_S:g} s of {number.name}") from None


# ---- faults of clients -------------------------------------------------------------------------------------------------


async def _kill(client: TransactionProcess) -> None:
    await client.end(signal.SIGKILL)
    await client.start()


async def _stop(client: TransactionProcess) -> None:
    client.signal(signal.SIGSTOP)
    await asyncio.sleep(1.5 * TRANSACTION_MS / 1000)
    client.signal(signal.SIGCONT)


async def _pause_shortly(client: TransactionProcess) -> None:
    client.signal(signal.SIGSTOP)
    await asyncio.sleep(TRANSACTION_MS / 8000)
    client.signal(signal.SIGCONT)


async def _twin(client: TransactionProcess) -> None:
    """Starts a second process; the first one is fenced, and ends by itself."""
    await client.start()
    await client.fenced()


CLIENT_FAULTS: Final[Mapping[str, Callable[[TransactionProcess], Any]]] = {
    "kill-client": _kill,
    "twin": _twin,
    "pause-client": _pause_shortly,
    "stop-client": _stop,
}
"""kill -9; a second producer of the transactional id; SIGSTOP for less, and for more, than a transaction may be open."""


async def happen(fault: Fault, target: Target) -> None:
    """Lets a fault of brokers happen, and waits until all of them are back.

    Raises:
        RequestTimedOutError: They are not, or the fault has not come about.
    """
    try:
        async with asyncio.timeout(PATIENCE_S):
            async with fault.happens(target):
                await asyncio.sleep(QUIET_S)
            await target.cluster.wait_until_ready()
            await target.admin.elect_leaders()
    except TimeoutError:
        raise RequestTimedOutError(f"not over within {PATIENCE_S:g} s: {fault.text}") from None


# ---- a run ---------------------------------------------------------------------------------------------------------------


class TransactionRun:
    """The clients, and what happens to them.

    Args:
        servers: The brokers.
        folder: Where clients write.
        mark: What names of this run end with.
        say: The function that is told what happens.
        program: The program of the clients, one of `PROGRAMS`.
    """

    def __init__(self, servers: str, folder: Path, mark: str, say: Callable[[str], None], program: str) -> None:
        self.outcome = TransactionChaos()
        self.inputs, self.outputs, self._group = f"{INPUTS}{mark}", f"chaos-outputs{mark}", f"chaos-chains{mark}"
        self._servers = servers
        self._say = say
        self._writers = [
            TransactionProcess(folder, name, program, "write", servers, name, self.inputs, str(PARTITIONS))
            for name in (f"writer-{number}{mark}" for number in range(WRITERS))
        ]
        self._chains = [
            TransactionProcess(folder, name, program, "chain", servers, name, self._group, self.inputs, self.outputs)
            for name in (f"chain-{number}{mark}" for number in range(CHAINS))
        ]
        self._readers = [
            TransactionProcess(
                folder, f"reader-{number}", program, "read", servers, str(PARTITIONS), self.inputs, self.outputs
            )
            for number in range(READERS)
        ]

    @property
    def _clients(self) -> list[TransactionProcess]:
        return [*self._writers, *self._chains, *self._readers]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the clients for as long as the block; each ends its transaction and leaves."""
        try:
            for client in self._clients:
                await client.start()
            await self._gets_on()
            yield
            for client in (*self._writers, *self._chains, *self._readers):
                await client.end(signal.SIGTERM)
        finally:
            for client in self._clients:
                client.signal(signal.SIGCONT)
                await client.end(signal.SIGKILL)

    async def suffer(self, name: str, number: int, target: Target | None) -> None:
        """Lets one fault happen, and waits until every client gets on."""
        loop = asyncio.get_running_loop()
        if name in CLIENT_FAULTS:
            producers = [*self._writers, *self._chains]
            client = producers[number % len(producers)]
            await CLIENT_FAULTS[name](client)
            name = f"{name} ({client.name})"
        elif target is not None:
            await happen(PROCESS_FAULTS[name], target)
        since_s = loop.time()
        await self._gets_on()
        self.outcome.faults.append((name, loop.time() - since_s))
        self._say(f"{name}: all clients got on within {self.outcome.faults[-1][1]:.1f} s")

    async def _gets_on(self) -> None:
        """Waits until every client has committed some more transactions, or read some more records."""
        wanted = {client.name: client.progress() + MORE for client in self._clients}
        late = list(self._clients)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while late := [client for client in late if client.progress() < wanted[client.name]]:
                    for client in self._clients:
                        await client.revive()
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            names = ", ".join(client.name for client in late)
            raise RequestTimedOutError(f"{names} did not get on within {PATIENCE_S:g} s") from None

    async def judge(self) -> TransactionChaos:
        """Reads everything, and compares it with what clients did and saw."""
        lives = [life for client in self._clients for life in client.lives()]
        history = history_of(lives)
        await asyncio.to_thread(self._read_back, history)
        self.outcome.lines = count_of(lives)
        self.outcome.transactions = {each.value: history.count(each) for each in TransactionOutcome}
        self.outcome.anomalies = history.check()
        return self.outcome

    def _read_back(self, history: TransactionHistory) -> None:
        from confluent_kafka import TopicPartition

        for client in (*self._writers, *self._chains):
            producer_of(self._servers, client.name)  # whatever was left open is aborted
        places = [
            TopicPartition(topic, number) for topic in (self.inputs, self.outputs) for number in range(PARTITIONS)
        ]
        for (topic, number), records in read_all(self._servers, places).items():
            history.final_read((topic, number), records)
            self.outcome.inputs += len(records) if topic == self.inputs else 0
        consumer = reader_of(self._servers, self._group)
        for place in consumer.committed([place for place in places if place.topic == self.inputs], SILENCE_S):
            history.final_offset((place.topic, place.partition), max(place.offset, 0))
        consumer.close()


def read_all(servers: str, places: Sequence[Any]) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    """Returns all committed records of partitions.

    Raises:
        RequestTimedOutError: The end of a partition is not reached: a transaction is still open.
    """
    consumer = reader_of(servers, "nobody", enable_partition_eof=True)
    found: dict[tuple[str, int], list[tuple[int, bytes]]] = {(each.topic, each.partition): [] for each in places}
    ends = {key: consumer.get_watermark_offsets(place, SILENCE_S)[1] for key, place in zip(found, places, strict=True)}
    left = {key for key, end in ends.items() if end > 0}
    for place in places:
        place.offset = 0
    consumer.assign(list(places))
    silent = 0
    while left:
        messages = consumer.consume(500, QUIET_S)
        silent = 0 if messages else silent + 1
        if silent * QUIET_S > SILENCE_S:
            raise RequestTimedOutError(f"the ends of {sorted(left)} are not reached within {SILENCE_S:g} s")
        for message in messages:
            key = (message.topic(), message.partition())
            if message.error() is None:
                found[key].append((message.offset(), message.value()))
            elif message.error().name() == "_PARTITION_EOF" and message.offset() >= ends[key]:
                left.discard(key)
    consumer.close()
    return found


def create_topics(servers: str, topics: Sequence[str], replicas: int) -> None:
    """Creates topics."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    wanted = [NewTopic(topic, PARTITIONS, replicas) for topic in topics]
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics(wanted).values():
        future.result(PATIENCE_S)


async def run_transactions(
    names: Sequence[str], *, rounds: int, say: Callable[[str], None], servers: str = "", clients: str = "librdkafka"
) -> TransactionChaos:
    """Lets every fault happen some times, and judges.

    Args:
        names: The faults: of `CLIENT_FAULTS`, and of `PROCESS_FAULTS` where the brokers are ours.
        rounds: The number of times that all of them happen.
        say: The function that is told what happens.
        servers: Brokers that run already, whoever's; "": a new cluster of ours, which is gone afterwards.
        clients: Whose clients suffer, a name of `PROGRAMS`.  All is read back with librdkafka's.

    Raises:
        RequestTimedOutError: A client did not get on, or a transaction stayed open.
        ReplogError: The cluster did not come up, or a client ended by itself.
    """
    folder = Path(tempfile.mkdtemp(prefix="replog-chaos-transactions-"))
    try:
        async with AsyncExitStack() as stack:
            cluster = prepared(Scene.PLAIN, folder / "cluster", NODES, CONFIG, INPUTS)
            target = await stack.enter_async_context(nullcontext() if servers else cluster)
            brokers = servers or ("" if target is None else target.bootstrap_servers)
            mark = f"-{time.monotonic_ns():x}" if servers else ""
            run = TransactionRun(brokers, folder, mark, say, PROGRAMS[clients])
            await asyncio.to_thread(create_topics, brokers, (run.inputs, run.outputs), 1 if servers else NODES)
            async with run.running():
                for number, name in enumerate([*names] * rounds):
                    await run.suffer(name, number, target)
            return await run.judge()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
