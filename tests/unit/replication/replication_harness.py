"""Drivers of the replication cores for tests: a log that is a list, a leader told what to do, a pair of replicas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from replog.errors import ErrorCode
from replog.metadata.config_keys import FlushPolicy
from replog.replication.fetch_check import check_fetch
from replog.replication.follower import Follower
from replog.replication.leader import Leader
from replog.replication.messages import (
    AlterPartitionAnswered,
    Appended,
    AppendFetched,
    AwaitProduce,
    EpochEnd,
    FetchAnswered,
    Flushed,
    FollowerEffect,
    FollowerFetched,
    HighWatermarkAdvanced,
    IsrChanged,
    LeaderEffect,
    LeaderMessage,
    PartitionState,
    ProduceCompleted,
    ProposeIsr,
    RequestFlush,
    Resigned,
    SetHighWatermark,
    SetLogStartOffset,
    StateChanged,
    Tick,
    TruncateFullyAndStartAt,
    TruncateTo,
)

TOPIC_PARTITION = "flights-0"


def options(words: list[str]) -> dict[str, str]:
    """`["epoch", "5", "isr", "1,2"]` as a mapping."""
    return dict(zip(words[::2], words[1::2], strict=True))


def ids(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part)


def text(replica_ids: tuple[int, ...]) -> str:
    return ",".join(map(str, replica_ids))


class ListLog:
    """A log of (epoch, value) pairs with the epoch cache of docs/KAFKA.md 3.5."""

    def __init__(self, records: list[tuple[int, str]] | None = None, start: int = 0) -> None:
        self.log_start_offset = start
        self.records = list(records or [])
        self.flushed_offset = self.log_end_offset
        self.epochs: list[tuple[int, int]] = []
        for index, (epoch, _) in enumerate(self.records):
            self.assign(epoch, start + index)

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    @property
    def last_epoch(self) -> int | None:
        return self.epochs[-1][0] if self.epochs else None

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd | None:
        if not self.epochs or epoch < 0 or epoch > self.epochs[-1][0]:
            return None
        if epoch < self.epochs[0][0]:
            return EpochEnd(epoch, self.epochs[0][1])
        index = max(i for i, (known, _) in enumerate(self.epochs) if known <= epoch)
        end = self.epochs[index + 1][1] if index + 1 < len(self.epochs) else self.log_end_offset
        return EpochEnd(self.epochs[index][0], end)

    def assign(self, epoch: int, offset: int) -> None:
        if self.epochs and self.epochs[-1][0] == epoch:
            return
        self.epochs = [(e, o) for e, o in self.epochs if e < epoch and o < offset]
        self.epochs.append((epoch, offset))

    def append(self, epoch: int, value: str) -> None:
        self.assign(epoch, self.log_end_offset)
        self.records.append((epoch, value))

    def truncate_to(self, offset: int) -> None:
        del self.records[max(0, offset - self.log_start_offset) :]
        self.epochs = [(e, o) for e, o in self.epochs if o < offset]
        self.flushed_offset = min(self.flushed_offset, offset)

    def restart_at(self, offset: int) -> None:
        self.records, self.epochs, self.log_start_offset, self.flushed_offset = [], [], offset, offset

    def __str__(self) -> str:
        return " ".join(f"{value}{epoch}" for epoch, value in self.records)


class LeaderDriver:
    """Runs the commands of `tests/data/replication/worked_leader_*.txt` against one `Leader`."""

    leader: Leader
    state: PartitionState

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.log_end_offset = 0
        self.proposal: ProposeIsr | None = None

    def execute(self, command: str) -> Iterator[str]:
        verb, *words = command.split()
        effects: tuple[LeaderEffect, ...] | str = getattr(self, f"do_{verb}")(words)
        if isinstance(effects, str):
            yield effects
            return
        for effect in effects:
            if isinstance(effect, ProposeIsr):
                self.proposal = effect
            if not isinstance(effect, IsrChanged):  # for people; the examples say `show isr` where it matters
                yield describe_leader_effect(effect)

    def step(self, message: LeaderMessage) -> tuple[LeaderEffect, ...]:
        return self.leader.step(message, self.now_ms)

    def do_leader(self, words: list[str]) -> tuple[LeaderEffect, ...]:
        """leader 1 epoch 5 isr 1,2,3 [elr ..] [replicas ..] [min_isr n] [end n] [flushed n] [high_watermark n] [flush auto]"""
        given = options(words[1:])
        isr = ids(given["isr"])
        replicas = ids(given.get("replicas", "1,2,3"))
        self.log_end_offset = int(given.get("end", "0"))
        self.state = PartitionState(
            leader=int(words[0]),
            leader_epoch=int(given["epoch"]),
            partition_epoch=0,
            replicas=replicas,
            isr=isr,
            elr=ids(given.get("elr", "")),
            min_insync_replicas=int(given.get("min_isr", "1")),
            eligible={replica_id: 100 + replica_id for replica_id in replicas},
            recovering="recovering" in given,
        )
        self.leader = Leader(
            topic_partition=TOPIC_PARTITION,
            broker_id=int(words[0]),
            state=self.state,
            log_end_offset=self.log_end_offset,
            flushed_offset=int(given.get("flushed", self.log_end_offset)),
            high_watermark=int(given.get("high_watermark", "0")),
            flush_policy=FlushPolicy(given.get("flush", "os")),
            now_ms=self.now_ms,
        )
        return self.step(Tick())

    def do_append(self, words: list[str]) -> tuple[LeaderEffect, ...]:
        """append to 15"""
        self.log_end_offset = int(words[1])
        return self.step(Appended(self.log_end_offset))

    def do_flushed(self, words: list[str]) -> tuple[LeaderEffect, ...]:
        """flushed 15"""
        return self.step(Flushed(int(words[0])))

    def do_fetch(self, words: list[str]) -> tuple[LeaderEffect, ...]:
        """fetch 2 at 7 [flushed n] [broker_epoch n]"""
        given = options(words[1:])
        replica_id = int(words[0])
        fetched = FollowerFetched(
            replica_id=replica_id,
            broker_epoch=int(given.get("broker_epoch", 100 + replica_id)),
            fetch_offset=int(given["at"]),
            flushed_offset=int(given.get("flushed", given["at"])),
            log_start_offset=0,
            leader_end_offset=self.log_end_offset,
        )
        return self.step(fetched)

    def do_produce(self, words: list[str]) -> tuple[LeaderEffect, ...]:
        """produce 7 end 10 [timeout 30000]"""
        given = options(words[1:])
        deadline_ms = self.now_ms + int(given.get("timeout", "30000"))
        return self.step(Appended(self.log_end_offset, (AwaitProduce(int(words[0]), int(given["end"]), deadline_ms),)))

    def do_advance(self, words: list[str]) -> tuple[LeaderEffect, ...]:
        """advance 5000: a tick at every deadline on the way"""
        target_ms = self.now_ms + int(words[0])
        effects: tuple[LeaderEffect, ...] = ()
        while (deadline_ms := self.leader.next_deadline_ms()) is not None and deadline_ms <= target_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            effects += self.step(Tick())
        self.now_ms = target_ms
        return effects

    def do_controller(self, words: list[str]) -> tuple[LeaderEffect, ...]:
        """controller commits isr 1,2 partition_epoch 1 | controller answers INELIGIBLE_REPLICA"""
        assert self.proposal is not None
        if words[0] == "answers":
            answer = AlterPartitionAnswered(self.proposal.proposal_id, ErrorCode[words[1]], -1, -1, ())
            return self.step(answer)
        given = options(words[1:])
        isr, partition_epoch = ids(given["isr"]), int(given["partition_epoch"])
        proposal_id, leader_epoch = self.proposal.proposal_id, self.proposal.leader_epoch
        return self.step(AlterPartitionAnswered(proposal_id, ErrorCode.NONE, leader_epoch, partition_epoch, isr))

    def do_metadata(self, words: list[str]) -> tuple[LeaderEffect, ...]:
        """metadata [epoch 6] [partition_epoch 3] [isr 1,2] [elr 3|none] [min_isr 2] [eligible 1,2] [replicas 1,2,4]"""
        given = options(words)
        eligible: Mapping[int, int] = self.state.eligible
        if "eligible" in given:
            eligible = {replica_id: 100 + replica_id for replica_id in ids(given["eligible"])}
        self.state = replace(
            self.state,
            leader_epoch=int(given.get("epoch", self.state.leader_epoch)),
            partition_epoch=int(given.get("partition_epoch", self.state.partition_epoch)),
            isr=ids(given["isr"]) if "isr" in given else self.state.isr,
            elr=ids(given["elr"].replace("none", "")) if "elr" in given else self.state.elr,
            replicas=ids(given["replicas"]) if "replicas" in given else self.state.replicas,
            min_insync_replicas=int(given.get("min_isr", self.state.min_insync_replicas)),
            eligible=eligible,
            recovering=False,
        )
        return self.step(StateChanged(self.state))

    def do_resign(self, words: list[str]) -> tuple[LeaderEffect, ...]:
        return self.step(Resigned())

    def do_check(self, words: list[str]) -> str:
        """check produce acks -1 | check fetch_epoch 4 | check leads_on 6 | check follower 3 broker_epoch 102"""
        match words:
            case ["produce", "acks", acks]:
                return self.leader.check_produce(int(acks)).name
            case ["fetch_epoch", epoch]:
                return self.leader.check_fetch_epoch(None if epoch == "none" else int(epoch)).name
            case ["leads_on", epoch]:
                return "yes" if self.leader.leads_on(int(epoch)) else "no"
            case ["follower", replica_id, "broker_epoch", epoch]:
                return self.leader.check_follower(int(replica_id), int(epoch)).name
            case _:
                raise ValueError(words)

    def do_show(self, words: list[str]) -> str:
        """show high_watermark | show isr | show latest | show replicas | show lag"""
        status = self.leader.status()
        match words[0]:
            case "high_watermark":
                return f"high_watermark {status.high_watermark}"
            case "isr":
                return f"isr {text(status.isr)} maximal {text(status.maximal_isr)} partition_epoch {status.partition_epoch}"
            case "latest":
                return f"{status.high_watermark}" if self.leader.latest_offset_available() else "not available"
            case "replicas":
                return " ".join(f"{r.replica_id}={r.log_end_offset}" for r in status.replicas)
            case "lag":
                return f"lag {status.lag}"
            case _:
                raise ValueError(words)


def describe_leader_effect(effect: LeaderEffect) -> str:
    match effect:
        case HighWatermarkAdvanced():
            return f"high_watermark {effect.high_watermark}"
        case ProposeIsr():
            members = text(tuple(replica_id for replica_id, _ in effect.isr))
            return f"send AlterPartition isr {members} partition_epoch {effect.partition_epoch}"
        case ProduceCompleted():
            return f"produce {effect.request_id} {effect.error.name}"
        case RequestFlush():
            return "flush"
        case IsrChanged():
            return f"isr {text(effect.isr)} was {text(effect.before)}"


class Replica:
    """One broker's replica: a log, what it knows, and at most one role."""

    def __init__(self, broker_id: int, log: ListLog, high_watermark: int) -> None:
        self.broker_id = broker_id
        self.log = log
        self.high_watermark = high_watermark
        self.follower: Follower | None = None

    def perform(self, effects: tuple[FollowerEffect, ...], fetched: list[tuple[int, str]]) -> Iterator[str]:
        """Performs effects in order, yields what a person would want to know."""
        for effect in effects:
            match effect:
                case AppendFetched():
                    yield from self._append(effect.leader_epoch, fetched)
                case TruncateTo():
                    self.log.truncate_to(effect.offset)
                    yield f"{self.broker_id} truncates to {effect.offset}"
                case TruncateFullyAndStartAt():
                    self.log.restart_at(effect.offset)
                    yield f"{self.broker_id} starts again at {effect.offset}"
                case SetHighWatermark():
                    self.high_watermark = effect.high_watermark
                case SetLogStartOffset():
                    del self.log.records[: effect.log_start_offset - self.log.log_start_offset]
                    self.log.log_start_offset = effect.log_start_offset
                case RequestFlush():
                    self.log.flushed_offset = self.log.log_end_offset
                    yield from self.perform(self.step(Flushed(self.log.flushed_offset)), [])

    def step(self, message: Appended | Flushed | Tick | FetchAnswered) -> tuple[FollowerEffect, ...]:
        assert self.follower is not None
        return self.follower.step(message, 0)

    def _append(self, leader_epoch: int, fetched: list[tuple[int, str]]) -> Iterator[str]:
        for epoch, value in fetched:
            if epoch > leader_epoch:
                break
            self.log.append(epoch, value)
            yield f"{self.broker_id} appends {value}{epoch}"
        yield from self.perform(self.step(Appended(self.log.log_end_offset)), [])


class ClusterDriver:
    """Runs the commands of `tests/data/replication/worked_cluster_*.txt`: several logs, one leader, fetches one by one."""

    leader: Leader

    def __init__(self) -> None:
        self.replicas: dict[int, Replica] = {}
        self.leader_id = -1

    def execute(self, command: str) -> Iterator[str]:
        verb, *words = command.split()
        yield from getattr(self, f"do_{verb}")(words)

    def do_replica(self, words: list[str]) -> Iterator[str]:
        """replica 1 high_watermark 2 [start n] [epochs none] log a0 b0 c1: value and epoch of each record"""
        broker_id, at = int(words[0]), words.index("log")
        given = options(words[1:at])
        records = [(int(word[1:]), word[0]) for word in words[at + 1 :]]
        log = ListLog(records, int(given.get("start", "0")))
        if given.get("epochs") == "none":
            log.epochs = []
        self.replicas[broker_id] = Replica(broker_id, log, int(given["high_watermark"]))
        yield from ()

    def do_elect(self, words: list[str]) -> Iterator[str]:
        """elect 2 epoch 1 [isr 1,2]: 2 leads, everybody else follows"""
        given = options(words[1:])
        self.leader_id, epoch = int(words[0]), int(given["epoch"])
        replica = self.replicas[self.leader_id]
        replica.follower = None
        replica.log.assign(epoch, replica.log.log_end_offset)
        state = PartitionState(
            leader=self.leader_id,
            leader_epoch=epoch,
            partition_epoch=epoch,
            replicas=tuple(sorted(self.replicas)),
            isr=ids(given.get("isr", str(self.leader_id))),
            elr=(),
            min_insync_replicas=1,
            eligible={},
        )
        self.leader = Leader(
            topic_partition=TOPIC_PARTITION,
            broker_id=self.leader_id,
            state=state,
            log_end_offset=replica.log.log_end_offset,
            flushed_offset=replica.log.flushed_offset,
            high_watermark=replica.high_watermark,
            flush_policy=FlushPolicy.OS,
            now_ms=0,
        )
        self._perform_leader(self.leader.step(Tick(), 0))
        for follower in self.replicas.values():
            if follower.broker_id != self.leader_id:
                yield from self.do_follow([str(follower.broker_id)])

    def do_follow(self, words: list[str]) -> Iterator[str]:
        """follow 1: replica 1 (re)starts to follow the leader"""
        replica = self.replicas[int(words[0])]
        replica.follower = Follower(
            topic_partition=TOPIC_PARTITION,
            broker_id=replica.broker_id,
            leader_id=self.leader_id,
            leader_epoch=self.leader.leader_epoch,
            log=replica.log,
            high_watermark=replica.high_watermark,
            now_ms=0,
        )
        yield from replica.perform(replica.step(Tick()), [])

    def do_append(self, words: list[str]) -> Iterator[str]:
        """append x y: the leader appends"""
        replica = self.replicas[self.leader_id]
        for value in words:
            replica.log.append(self.leader.leader_epoch, value)
        self._perform_leader(self.leader.step(Appended(replica.log.log_end_offset), 0))
        yield from ()

    def do_fetch(self, words: list[str]) -> Iterator[str]:
        """fetch 1: one fetch of replica 1, answered by the leader"""
        replica, leader_log = self.replicas[int(words[0])], self.replicas[self.leader_id].log
        assert replica.follower is not None
        position = replica.follower.fetch_position(0)
        if position is None:
            yield f"{replica.broker_id} does not fetch"
            return
        check = check_fetch(position.fetch_offset, position.last_fetched_epoch, leader_log)
        fetched: list[tuple[int, str]] = []
        if check.ok:
            fetched = leader_log.records[position.fetch_offset - leader_log.log_start_offset :]
            message = FollowerFetched(
                replica.broker_id, -1, position.fetch_offset, position.flushed_offset, 0, leader_log.log_end_offset
            )
            self._perform_leader(self.leader.step(message, 0))
        answer = FetchAnswered(
            fetch_offset=position.fetch_offset,
            leader_epoch=position.leader_epoch,
            error=check.error,
            high_watermark=self.leader.high_watermark,
            log_start_offset=leader_log.log_start_offset,
            leader_end_offset=leader_log.log_end_offset,
            size_bytes=len(fetched),
            diverging=check.diverging,
        )
        yield from replica.perform(replica.step(answer), fetched)

    def do_show(self, words: list[str]) -> Iterator[str]:
        """show 1: its log and high watermark"""
        replica = self.replicas[int(words[0])]
        start = f"start {replica.log.log_start_offset} " if replica.log.log_start_offset else ""
        yield f"{start}log {replica.log} high_watermark {replica.high_watermark}"

    def _perform_leader(self, effects: tuple[LeaderEffect, ...]) -> None:
        for effect in effects:
            if isinstance(effect, HighWatermarkAdvanced):
                self.replicas[self.leader_id].high_watermark = effect.high_watermark
