"""Elections that are asked for: by an operator (ElectLeaders), or by time (preferred leaders, partitions without one)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from replog.controller.config import ControllerConfig
from replog.controller.managers.partition_walk import LookedAt, PartitionWalk
from replog.controller.managers.replication import ReplicationControl, only_changes
from replog.controller.partitions.change import Election, partition_change
from replog.controller.requests import ElectLeaders, ElectLeadersResponse, NamedPartition, PartitionResult, Result
from replog.controller.state.broker_registry import BrokerRegistry
from replog.controller.state.partition_map import PartitionKey
from replog.controller.state.replication import ReplicationState
from replog.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    ErrorCode,
    InvalidRequestError,
    PreferredLeaderNotAvailableError,
    ReplogError,
    UnknownTopicOrPartitionError,
)
from replog.metadata.records import NO_LEADER, ElectionType, PartitionChangeRecord


class ElectionControl:
    """Makes the records of elections that no broker's fate demands."""

    def __init__(
        self,
        config: ControllerConfig,
        state: ReplicationState,
        replication: ReplicationControl,
        brokers: BrokerRegistry,
    ) -> None:
        self._config = config
        self._state = state
        self._replication = replication
        self._brokers = brokers
        self._imbalanced = PartitionWalk(state.imbalanced.in_order, state.imbalanced.__contains__)
        self._leaderless = PartitionWalk(state.leaderless.in_order, state.leaderless.__contains__)

    # ---- asked for by an operator -----------------------------------------------------------------------------------

    def elect(self, request: ElectLeaders) -> Result:
        """Elects the leaders asked for: one result per partition named.

        Without names there is a result for each partition that got another leader or failed to, and at most
        `max_records_per_request` leaders are elected; who asks again gets the next.

        Raises:
            InvalidRequestError: The type is none that can be asked for.
        """
        if request.election_type not in {ElectionType.PREFERRED, ElectionType.UNCLEAN}:
            raise InvalidRequestError(f"{request.election_type.name} elections cannot be asked for")
        partitions = (
            self._all(request.election_type) if request.partitions is None else dict.fromkeys(request.partitions)
        )
        records: list[PartitionChangeRecord] = []
        results: list[PartitionResult] = []
        for partition in partitions:
            if len(records) >= self._config.max_records_per_request:
                break
            code, message = ErrorCode.NONE, ""
            try:
                records.append(self._elect_one(request.election_type, partition))
            except ReplogError as error:
                code, message = error.code, str(error)
            if request.partitions is not None or code is not ErrorCode.ELECTION_NOT_NEEDED:
                results.append(PartitionResult(partition.topic, partition.partition_id, code, message))
        return Result(tuple(records), ElectLeadersResponse(tuple(results)))

    def needed(self, election_type: ElectionType) -> tuple[NamedPartition, ...]:
        """Returns the partitions for which an election may be needed, as many as one request elects leaders for."""
        return tuple(islice(self._all(election_type), self._config.max_records_per_request))

    def _all(self, election_type: ElectionType) -> Iterable[NamedPartition]:
        """Yields the partitions for which an election may be needed."""
        state = self._state
        others = (state.imbalanced,) if election_type is ElectionType.PREFERRED else ()
        for key in state.leaderless.in_order(*others):
            yield NamedPartition(state.topics[key[0]], key[1])

    def _elect_one(self, election_type: ElectionType, item: NamedPartition) -> PartitionChangeRecord:
        topic_id = self._state.topic_ids.get(item.topic)
        if topic_id is None or (topic_id, item.partition_id) not in self._state.partitions:
            raise UnknownTopicOrPartitionError(f"there is no partition {item.topic}-{item.partition_id}")
        key = (topic_id, item.partition_id)
        return self._preferred(key) if election_type is ElectionType.PREFERRED else self._unclean(key)

    def _preferred(self, key: PartitionKey) -> PartitionChangeRecord:
        preferred = self._state.partitions[key].replicas[0]
        if self._state.partitions[key].leader == preferred:
            raise ElectionNotNeededError(f"broker {preferred} leads already")
        change = self._preferred_or_none(key)
        if change is None:
            raise PreferredLeaderNotAvailableError(f"broker {preferred} is not in sync, not up, or being drained")
        return change

    def _unclean(self, key: PartitionKey) -> PartitionChangeRecord:
        partition = self._state.partitions[key]
        if partition.leader != NO_LEADER:
            raise ElectionNotNeededError(f"broker {partition.leader} leads")
        change = partition_change(*key, partition, self._replication.rules(key, unclean_allowed=True))
        if change is None or change.leader in {None, NO_LEADER}:
            raise EligibleLeadersNotAvailableError(f"none of the replicas {list(partition.replicas)} is up")
        return change

    # ---- by time ----------------------------------------------------------------------------------------------------

    def start_term(self) -> None:
        """Begins with the first partitions."""
        self._imbalanced.begin_again()
        self._leaderless.begin_again()

    def rebalance(self, count_max: int) -> LookedAt:
        """Makes the changes that give leaderships back to the first of the replicas, of at most so many partitions."""
        keys, is_all = self._imbalanced.next(count_max)
        changes = (self._preferred_or_none(key) for key in keys)
        return LookedAt(only_changes(changes), is_all=is_all)

    def elect_leaderless(self, count_max: int) -> LookedAt:
        """Elects leaders where there is none and one may be, unclean ones where the topic allows that; of at most so many partitions.

        What brings a broker back elects at once; this finds what was missed, and what an older version left behind.
        """
        keys, is_all = self._leaderless.next(count_max)
        changes = (partition_change(*key, self._state.partitions[key], self._replication.rules(key)) for key in keys)
        return LookedAt(tuple(each for each in changes if each and each.leader not in {None, NO_LEADER}), is_all=is_all)

    def _preferred_or_none(self, key: PartitionKey) -> PartitionChangeRecord | None:
        partition = self._state.partitions[key]
        preferred = partition.replicas[0]
        if self._brokers.is_drained(preferred) or not self._brokers.is_active(preferred):
            return None
        change = partition_change(*key, partition, self._replication.rules(key), election=Election.PREFERRED)
        return change if change is not None and change.leader == preferred else None
