"""What parts of a node tell and ask parts that are made after them.

    quorum -> controller, publisher, lifecycle     commits, who leads
    flusher -> stepper                             a log whose fsync failed
    lifecycle -> publisher                         whether this broker may serve
    ISR sender, fetchers -> lifecycle, publisher   the broker epoch, addresses
    images -> publisher, lifecycle                 what was deleted, what the controller should hear of
    lifecycle -> publisher                         which endpoints of this broker the metadata lacks

The parts go round in circles, so some of them are given methods of `PartLinks`, which `assembly` makes first and tells
of all parts at its end.  Nothing runs before that.
"""

from __future__ import annotations

from uuid import UUID

from replog.broker.controller.broker_lifecycle import untold_endpoints
from replog.broker.node.parts import NodeParts
from replog.broker.node.resources import NodeResources
from replog.broker.quorum.committed_log import LoadedSnapshot
from replog.broker.replicas.replica import ReplicaKey
from replog.broker.replicas.views import has_awaited_ends
from replog.controller.messages import CommittedRecords
from replog.controller.requests import PartitionIsrResult
from replog.errors import InvariantViolationError, StorageError
from replog.log import Log
from replog.metadata.records import BrokerEndpoint


class PartLinks:
    """The links between the parts of one node; it is what the quorum tells of commits and of leadership.

    Args:
        resources: What the parts are made from.

    Attributes:
        leader: The leader of the quorum and its epoch, as this node knows them.
    """

    def __init__(self, resources: NodeResources) -> None:
        self.leader: tuple[int | None, int] = (None, -1)
        self._resources = resources
        self._joined: NodeParts | None = None

    def join(self, parts: NodeParts) -> None:
        """Takes the parts, when all are made."""
        self._joined = parts

    @property
    def _parts(self) -> NodeParts:
        if self._joined is None:
            raise InvariantViolationError("a part of a node asks for another one before all are made")
        return self._joined

    # ---- what the quorum tells ----------------------------------------------------------------------------------------

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        if (controller := self._parts.metadata.controller) is not None:
            controller.on_snapshot(snapshot)
        self._parts.replicas.publisher.on_snapshot(snapshot)

    def on_committed(self, batch: CommittedRecords) -> None:
        if (controller := self._parts.metadata.controller) is not None:
            controller.on_committed(batch)
        self._parts.replicas.publisher.on_committed(batch)

    def on_caught_up(self, _high_watermark: int) -> None:
        publisher = self._parts.replicas.publisher
        publisher.on_caught_up()
        self._parts.metadata.snapshots.image_published(publisher.image)

    def on_control_records(self, next_offset: int) -> None:
        if (controller := self._parts.metadata.controller) is not None:
            controller.on_control_records(next_offset)

    def on_became_leader(self, epoch: int, next_offset: int) -> None:
        if (controller := self._parts.metadata.controller) is not None:
            controller.on_became_leader(epoch, next_offset)

    def on_lost_leadership(self, epoch: int) -> None:
        if (controller := self._parts.metadata.controller) is not None:
            controller.on_lost_leadership(epoch)

    def on_leader_changed(self, leader_id: int | None, epoch: int) -> None:
        self.leader = (leader_id, epoch)
        self.hurry()  # a new controller should know soon what this broker cannot use
        self.tell_watchers()

    # ---- what parts tell ----------------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """Sends the next heartbeat soon: the controller should hear of something."""
        self._parts.replicas.lifecycle.hurry()

    def tell_watchers(self) -> None:
        """Tells clients that whether this node serves, or knows of a controller, may have changed."""
        self._parts.replicas.publisher.notify()

    def metadata_applied(self) -> None:
        """Notes that the replicas are as another image says."""
        stepper = self._parts.replicas.stepper
        self._parts.requests.coordinators.image_applied(stepper.image)
        awaits_ends = has_awaited_ends(stepper.image, self._resources.config.node_id, stepper.replicas)
        if awaits_ends or self.untold_endpoints():
            self.hurry()

    def log_failed(self, log: Log, error: StorageError) -> None:
        """Notes that the fsync of a log failed: without its metadata log the node cannot go on."""
        if log is self._resources.metadata_log.log:
            self._resources.on_failure(error)
            return
        stepper = self._parts.replicas.stepper
        stepper.driver.submit(lambda: stepper.trouble.log_failed(log, error))

    def isr_answered(self, key: ReplicaKey, proposal_id: int, result: PartitionIsrResult) -> None:
        """Hands on what the controller has made of a leader's proposal."""
        stepper = self._parts.replicas.stepper
        stepper.driver.submit(lambda: stepper.handle_isr_answer(key, proposal_id, result))

    # ---- what parts ask -----------------------------------------------------------------------------------------------

    def leader_id(self) -> int | None:
        """Returns the leader of the quorum; None: it is unknown."""
        return self.leader[0]

    def broker_epoch(self) -> int:
        """Returns the broker epoch of this incarnation; -1: it is not registered."""
        return self._parts.replicas.lifecycle.broker_epoch

    def untold_endpoints(self) -> tuple[BrokerEndpoint, ...]:
        """Returns the endpoints of this broker that the metadata should hold and does not."""
        image = self._parts.replicas.publisher.image
        return untold_endpoints(image, self._resources.config.node_id, self._resources.endpoints)

    def was_deleted(self, topic_id: UUID) -> bool:
        """Whether the metadata log that was read at the start tells that a topic was deleted."""
        return self._parts.replicas.publisher.has_seen_removal(topic_id)

    def is_later(self, topic_id: UUID) -> bool:
        """Whether a topic was created after the process before this one ended."""
        return self._parts.replicas.publisher.is_later(topic_id)

    def address_of(self, broker_id: int) -> str | None:
        """Returns the host:port of a broker; None: the metadata does not name it."""
        broker = self._parts.replicas.publisher.image.brokers.get(broker_id)
        return None if broker is None else f"{broker.host}:{broker.port}"
