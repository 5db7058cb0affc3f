"""The active controller over a metadata log whose commits take a given time: pipelined, and one request per commit.

Both run the same core with the same managers.  The log is a model: it commits everything that was appended before the commit
began, one commit at a time, each after a real timer in wall time, like a group commit over an fsync and a round trip.
"""

from __future__ import annotations

import gc
import random
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from bench.model import System, WrongResultError
from replog.access.principal import ClientIdentity, Envelope, Principal
from replog.broker.process import tune_garbage_collector
from replog.controller.config import ControllerConfig
from replog.controller.controller import Controller
from replog.controller.messages import AppendRecords, Claim, CommittedRecords, Message, Reply, ReplyError, Submit
from replog.controller.requests import (
    ClientChange,
    ControllerResponse,
    Heartbeat,
    NamedPartition,
    NodeWish,
    RegisterBroker,
    RegisterBrokerResponse,
)
from replog.metadata.features import SUPPORTED_FEATURES
from replog.metadata.records import ElectionType, MetadataRecord

CLUSTER_ID = "bench"
_CLIENT = ClientIdentity(Principal("bench"), "127.0.0.1")
_TIMEOUT_MS = 600_000  # the brokers send no heartbeats


class ControllerSystem(System):
    """A controller of one node with some live brokers.

    Args:
        name: for tables.
        in_flight: requests that may wait for their commit at a time.
    """

    def __init__(self, name: str, in_flight: int) -> None:
        self.name = name
        self.in_flight = in_flight
        self._thresholds = gc.get_threshold()

    def start(self, directory: Path) -> None:  # noqa: ARG002 -- nothing is stored
        """As in a process of our own."""
        tune_garbage_collector()

    def stop(self) -> None:
        """As before."""
        gc.set_threshold(*self._thresholds)

    def new_controller(self, commit_ms: float, brokers_count: int) -> TimedController:
        """An active controller whose brokers are registered and unfenced."""
        controller = TimedController(commit_ms)
        for broker_id in range(1, brokers_count + 1):
            controller.start_broker(broker_id)
        return controller


class TimedController:
    """Steps the core, and commits what it appends.

    Args:
        commit_ms: how long a commit takes, in milliseconds of wall time.
    """

    def __init__(self, commit_ms: float) -> None:
        self._commit_s = commit_ms / 1000
        self._core = Controller(
            node_id=0,
            cluster_id=CLUSTER_ID,
            config=ControllerConfig(broker_session_timeout_ms=_TIMEOUT_MS),
            rng=random.Random(0),
            wall_ms=lambda: 0,
        )
        self._start_s = time.perf_counter()
        self._appended: list[MetadataRecord] = []  # since the commit that is under way began
        self._committing: CommittedRecords | None = None
        self._due_s = 0.0
        self._end_offset = 0
        self._answers: dict[int, ControllerResponse] = {}
        self._next_request_id = 0
        self._step(Claim(1, 0))

    @property
    def topics_count(self) -> int:
        """Topics that exist."""
        return self._core.status().topics_count

    def elections_needed(self, election_type: ElectionType) -> tuple[NamedPartition, ...]:
        """The partitions that an election of all is about."""
        return self._core.elections_needed(election_type)

    def start_broker(self, broker_id: int) -> None:
        """Register and unfence one broker."""
        registered = self.ask(
            RegisterBroker(
                broker_id,
                CLUSTER_ID,
                UUID(int=broker_id),
                "localhost",
                9000 + broker_id,
                (UUID(int=broker_id),),
                supported_features=SUPPORTED_FEATURES,
            )
        )
        if not isinstance(registered, RegisterBrokerResponse):
            raise WrongResultError(f"broker {broker_id} got {registered}")
        self.ask(Heartbeat(broker_id, registered.broker_epoch, self._end_offset))

    def ask(self, request: NodeWish | ClientChange) -> ControllerResponse:
        """One request, and its answer."""
        (answer,) = self.ask_all((request,), in_flight=1)
        return answer

    def ask_all(self, requests: Sequence[NodeWish | ClientChange], in_flight: int) -> list[ControllerResponse]:
        """All requests, at most so many waiting at a time; the answers in the same order.

        Raises:
            WrongResultError: one was refused.
        """
        self._answers = {}
        waiting = deque(enumerate(requests, self._next_request_id + 1))
        first_id, self._next_request_id = self._next_request_id + 1, self._next_request_id + len(requests)
        submitted_count = 0
        while len(self._answers) < len(requests):
            self._maybe_commit()
            if waiting and submitted_count - len(self._answers) < in_flight:
                request_id, request = waiting.popleft()
                submitted_count += 1
                wish = request if isinstance(request, NodeWish) else Envelope(request, _CLIENT)
                self._step(Submit(request_id, wish, self._now_ms() + _TIMEOUT_MS))
            elif self._committing is not None:
                time.sleep(max(0.0, self._due_s - time.perf_counter()))
        return [self._answers[request_id] for request_id in range(first_id, self._next_request_id + 1)]

    def _now_ms(self) -> int:
        return int((time.perf_counter() - self._start_s) * 1000)

    def _maybe_commit(self) -> None:
        """What was appended before the last commit ended goes into the next one."""
        if self._committing is not None and time.perf_counter() >= self._due_s:
            committed, self._committing = self._committing, None
            self._step(committed)
        if self._committing is None and self._appended:
            records, self._appended = tuple(self._appended), []
            base_offset = self._end_offset - len(records)
            self._committing = CommittedRecords(base_offset, self._end_offset, 1, records)
            self._due_s = time.perf_counter() + self._commit_s

    def _step(self, message: Message) -> None:
        for effect in self._core.step(message, self._now_ms()):
            match effect:
                case AppendRecords():
                    self._appended += effect.records
                    self._end_offset += len(effect.records)
                case Reply():
                    self._answers[effect.request_id] = effect.response
                case ReplyError():
                    raise WrongResultError(f"request {effect.request_id} was refused: {effect.error}")
                case _:
                    pass  # brokers to watch that are not there


def controllers() -> list[ControllerSystem]:
    """Pipelined, and the naive alternative: the next request waits for the commit of the one before."""
    return [ControllerSystem("pipelined", 256), ControllerSystem("naive", 1)]
