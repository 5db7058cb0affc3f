"""A broker's life in the cluster: registers, heartbeats, is unfenced, shuts down in order (docs/KAFKA.md 6.5).

Also the lease: a broker that has had no heartbeat answer for the session time-out refuses clients and followers, so a
process that was paused and wakes up serves nothing stale.  An answer counts once the broker has applied the metadata
that the controller made it of: the controller unfences at once a broker that it hears again, and what took that
broker's leaderships meanwhile is on its way.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TypeVar
from uuid import UUID

from replog.broker.clock import Clock
from replog.broker.controller.channel import ControllerChannel
from replog.config.server import ServerConfig
from replog.controller.requests import (
    REPLICAS_PER_REQUEST_MAX,
    Heartbeat,
    HeartbeatResponse,
    OfflineReplica,
    RegisterBroker,
    RegisterBrokerResponse,
    ReplicaEnd,
    ReportReplicas,
    ReportReplicasResponse,
)
from replog.errors import (
    BrokerIdNotRegisteredError,
    DuplicateBrokerRegistrationError,
    InconsistentClusterIdError,
    ReplogError,
    RequestTimedOutError,
    StaleBrokerEpochError,
)
from replog.metadata.features import METADATA_VERSION, METADATA_VERSION_ENDPOINTS, SUPPORTED_FEATURES
from replog.metadata.image import MetadataImage
from replog.metadata.records import BrokerEndpoint
from replog.waiting.task_ends import end_tasks

CATCH_UP_HEARTBEAT_MS = 10
SHUTDOWN_HEARTBEAT_MS = 50
MAX_UNAPPLIED_ANSWERS = 64

T = TypeVar("T")

_log = logging.getLogger(__name__)


class LifecycleState(Enum):
    """Where a broker stands."""

    STARTING = "starting"
    FENCED = "fenced"
    RUNNING = "running"
    SHUTTING_DOWN = "shutting down"


class BrokerLifecycle:
    """Registration and heartbeats of one broker.

    Args:
        metadata_offset: The function that returns the end (exclusive) of the metadata that this broker's replicas have
            applied.
        log_dirs: The ids of the log directories that work.
        unopened_log_dirs: The number of further log directories that may come back.
        endpoints: The endpoints at which this broker serves clients of other protocols.
        untold_endpoints: The function that returns them where the metadata could hold them and does not.
        awaited_ends: The function that returns the replicas whose log ends the controller waits for.
        offline_replicas: The function that returns the replicas that cannot be used.
        on_reported: The function that is told which offline replicas the controller has heard of, and the end of the
            metadata with what it made of that.
        previous_broker_epoch: The broker epoch in the clean-shutdown marker; -1 without a marker.
        on_lease_changed: The function that is called after the heartbeat by which the lease began or was found to have
            ended.
        on_failure: The function that is told when this process may not be part of the cluster.
    """

    def __init__(
        self,
        *,
        config: ServerConfig,
        cluster_id: str,
        incarnation_id: UUID,
        log_dirs: tuple[UUID, ...],
        unopened_log_dirs: int,
        endpoints: tuple[BrokerEndpoint, ...],
        untold_endpoints: Callable[[], tuple[BrokerEndpoint, ...]],
        previous_broker_epoch: int,
        host: str,
        port: int,
        channel: ControllerChannel,
        clock: Clock,
        metadata_offset: Callable[[], int],
        awaited_ends: Callable[[], tuple[ReplicaEnd, ...]],
        offline_replicas: Callable[[], tuple[OfflineReplica, ...]],
        on_reported: Callable[[tuple[OfflineReplica, ...], int], None],
        on_lease_changed: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.state = LifecycleState.STARTING
        self.broker_epoch = -1
        self._config = config
        self._registration = RegisterBroker(
            broker_id=config.node_id,
            cluster_id=cluster_id,
            incarnation_id=incarnation_id,
            host=host,
            port=port,
            log_dirs=log_dirs,
            rack=config.broker_rack,
            previous_broker_epoch=previous_broker_epoch,
            supported_features=SUPPORTED_FEATURES,
            unopened_log_dirs=unopened_log_dirs,
            endpoints=endpoints,
        )
        self._untold_endpoints = untold_endpoints
        self._channel = channel
        self._clock = clock
        self._metadata_offset = metadata_offset
        self._awaited_ends = awaited_ends
        self._offline_replicas = offline_replicas
        self._on_reported = on_reported
        self._on_lease_changed = on_lease_changed
        self._had_lease = False
        self._on_failure = on_failure
        self._answered_at_ms: int | None = None
        self._unapplied_answers: deque[tuple[int, int]] = deque(maxlen=MAX_UNAPPLIED_ANSWERS)  # (asked at, offset)
        self._running = asyncio.Event()
        self._may_stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="broker-lifecycle")

    def refuses_because(self) -> str | None:
        """Returns why this broker may not serve clients and followers now; None when it may.

        Whoever steps a replica for one of them asks right before.
        """
        waiting = self._unapplied_answers
        while waiting and waiting[0][1] <= self._metadata_offset():
            self._answered_at_ms = max(waiting.popleft()[0], self._answered_at_ms or 0)
        if self._answered_at_ms is None:
            return "the broker is starting"
        silent_ms = self._clock.now_ms() - self._answered_at_ms
        if silent_ms < self._config.broker_session_timeout_ms:
            return None
        if waiting:
            return f"catching up with the metadata after {silent_ms} ms without the controller"
        return f"cut off from the controller for {silent_ms} ms"

    @property
    def is_running(self) -> bool:
        """Whether the broker has been unfenced in this run."""
        return self._running.is_set()

    async def wait_until_running(self) -> None:
        """Waits until the broker is unfenced."""
        await self._running.wait()

    def hurry(self) -> None:
        """Sends the next heartbeat now instead of at the end of the interval: there is something to tell."""
        self._hurry.set()

    async def controlled_shutdown(self, timeout_s: float) -> bool:
        """Asks the controller to move leadership away, and returns whether it agreed in time."""
        if self.broker_epoch < 0:
            return False
        self.state = LifecycleState.SHUTTING_DOWN
        self.hurry()
        try:
            async with asyncio.timeout(timeout_s):
                await self._may_stop.wait()
        except TimeoutError:
            _log.warning("controlled shutdown was not confirmed within %g s", timeout_s)
            return False
        return True

    async def stop(self) -> None:
        await end_tasks(self._task)

    # ---- the loop -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._register()
            while True:
                self._hurry.clear()  # before: what happens during a heartbeat is told by the next one, at once
                interval_ms = await self._heartbeat()
                self._tell_lease()
                try:
                    async with asyncio.timeout(interval_ms / 1000):
                        await self._hurry.wait()
                except TimeoutError:
                    continue
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 -- without a lifecycle the broker must not go on
            self._on_failure(error)

    async def _register(self) -> None:
        """Registers this incarnation; tries again while another process with the same id is alive.

        Raises:
            InconsistentClusterIdError: This broker belongs to another cluster.
            RequestTimedOutError: No controller answered in time.
        """
        problem = ""
        timeout_ms = self._config.initial_broker_registration_timeout_ms
        while True:
            try:
                response = await self._channel.send(self._registration, RegisterBrokerResponse, timeout_ms=timeout_ms)
            except InconsistentClusterIdError:
                raise
            except DuplicateBrokerRegistrationError as error:
                if str(error) != problem:
                    _log.warning("%s", error)
                problem = str(error)
                self._tell_lease()
                await asyncio.sleep(self._config.broker_heartbeat_interval_ms / 1000)
                continue
            self.broker_epoch = response.broker_epoch
            self.state = LifecycleState.FENCED
            _log.info("registered with broker epoch %d", self.broker_epoch)
            return

    async def _register_again(self) -> int:
        """Registers anew and returns the pause until the next heartbeat, which is none.

        Where no controller answers in time the next heartbeat finds out anew; this broker serves nothing meanwhile.
        """
        try:
            await self._register()
        except RequestTimedOutError as error:
            _log.warning("%s", error)
        return 0

    async def _heartbeat(self) -> int:
        """Sends one heartbeat and the awaited log ends; returns the pause until the next heartbeat in milliseconds."""
        is_stopping = self.state is LifecycleState.SHUTTING_DOWN
        try:
            offline = in_parts(self._offline_replicas())
            for number, part in enumerate(offline, 1):
                await self._tell_alive(part, more_offline=number < len(offline), is_stopping=is_stopping)
            await self._report_ends()
        except (StaleBrokerEpochError, BrokerIdNotRegisteredError) as error:
            if is_stopping:
                self._may_stop.set()
                return self._config.broker_heartbeat_interval_ms
            _log.warning("%s; registering again", error)
            return await self._register_again()
        except RequestTimedOutError as error:
            # heartbeats may arrive though their answers do not, and would keep alive a leader that serves nobody
            _log.warning("heartbeat failed, connecting anew: %s", error)
            await self._channel.close()
            return SHUTDOWN_HEARTBEAT_MS
        except ReplogError as error:
            _log.warning("heartbeat failed: %s", error)
            return SHUTDOWN_HEARTBEAT_MS
        if is_stopping:
            return SHUTDOWN_HEARTBEAT_MS
        caught_up = self.state is LifecycleState.RUNNING
        return self._config.broker_heartbeat_interval_ms if caught_up else CATCH_UP_HEARTBEAT_MS

    async def _tell_alive(self, offline: tuple[OfflineReplica, ...], *, more_offline: bool, is_stopping: bool) -> None:
        asked_at_ms = self._clock.now_ms()
        request = Heartbeat(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            metadata_offset=self._metadata_offset(),
            want_shut_down=is_stopping,
            offline_replicas=offline,
            more_offline=more_offline,
            endpoints=self._untold_endpoints(),
        )
        timeout_ms = self._config.broker_session_timeout_ms
        response = await self._channel.send(request, HeartbeatResponse, timeout_ms=timeout_ms)
        self._take_in(response, asked_at_ms)
        if offline:
            self._on_reported(offline, response.metadata_offset)

    def _tell_lease(self) -> None:
        has_lease = self.refuses_because() is None
        if has_lease is not self._had_lease:
            self._had_lease = has_lease
            self._on_lease_changed()

    def _take_in(self, response: HeartbeatResponse, asked_at_ms: int) -> None:
        # counted from when the question left: the controller cannot have given the lease earlier than that
        self._unapplied_answers.append((asked_at_ms, response.metadata_offset))
        if response.should_shut_down:
            self._may_stop.set()
        if self.state is LifecycleState.SHUTTING_DOWN:
            return
        state = LifecycleState.FENCED if response.is_fenced else LifecycleState.RUNNING
        if state is not self.state:
            _log.info("broker is %s", state.value)
        self.state = state
        if state is LifecycleState.RUNNING:
            self._running.set()

    async def _report_ends(self) -> None:
        ends = self._awaited_ends()
        if not ends:
            return
        timeout_ms = self._config.broker_session_timeout_ms
        for part in in_parts(ends):
            request = ReportReplicas(self._config.node_id, self.broker_epoch, part)
            await self._channel.send(request, ReportReplicasResponse, timeout_ms=timeout_ms)


def untold_endpoints(
    image: MetadataImage, broker_id: int, endpoints: tuple[BrokerEndpoint, ...]
) -> tuple[BrokerEndpoint, ...]:
    """Returns the endpoints of a broker where the metadata could hold them and does not; else none.

    It registered while the cluster was at a level of `metadata.version` that knows no endpoints.
    """
    registration = image.brokers.get(broker_id)
    if registration is None or registration.endpoints == endpoints:
        return ()
    return endpoints if image.features.get(METADATA_VERSION, 0) >= METADATA_VERSION_ENDPOINTS else ()


def in_parts(replicas: tuple[T, ...]) -> list[tuple[T, ...]]:
    """Splits replicas into parts of as many as one request may name; without replicas there is one empty part."""
    starts = range(0, len(replicas), REPLICAS_PER_REQUEST_MAX)
    return [replicas[start : start + REPLICAS_PER_REQUEST_MAX] for start in starts] or [()]
