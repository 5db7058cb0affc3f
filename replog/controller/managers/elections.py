"""Elections that are asked for: by an operator (ElectLeaders), or by time (preferred leaders, partitions without one)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from replog.controller.config import ControllerConfig
from replog.controller.managers.replication import ReplicationControl
from replog.controller.partitions.change import Election, partition_change
from replog.controller.requests import ElectLeaders, ElectLeadersResponse, NamedPartition, PartitionResult, Result
from replog.controller.state.broker_registry import BrokerRegistry
from replog.controller.state.replication import PartitionKey, ReplicationState, in_order
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
        needy: Iterable[PartitionKey] = state.leaderless
        if election_type is ElectionType.PREFERRED:
            needy = (*state.imbalanced, *state.leaderless)
        for key in in_order(needy):
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

    def rebalance(self, count_max: int) -> tuple[PartitionChangeRecord, ...]:
        """Makes the changes that give leaderships back to the first of the replicas, at most so many."""
        return _first(self._preferred_changes(), count_max)

    def elect_leaderless(self, count_max: int) -> tuple[PartitionChangeRecord, ...]:
        """Elects leaders where there is none and one may be, unclean ones where the topic allows that; at most so many.

        What brings a broker back elects at once; this finds what was missed, and what an older version left behind.
        """
        return _first(self._leaderless_changes(), count_max)

    def _preferred_changes(self) -> Iterator[PartitionChangeRecord]:
        for key in in_order(self._state.imbalanced):
            change = self._preferred_or_none(key)
            if change is not None:
                yield change

    def _leaderless_changes(self) -> Iterator[PartitionChangeRecord]:
        for key in in_order(self._state.leaderless):
            change = partition_change(*key, self._state.partitions[key], self._replication.rules(key))
            if change is not None and change.leader not in {None, NO_LEADER}:
                yield change

    def _preferred_or_none(self, key: PartitionKey) -> PartitionChangeRecord | None:
        partition = self._state.partitions[key]
        preferred = partition.replicas[0]
        if self._brokers.is_drained(preferred) or not self._brokers.is_active(preferred):
            return None
        change = partition_change(*key, partition, self._replication.rules(key), election=Election.PREFERRED)
        return change if change is not None and change.leader == preferred else None


def _first(changes: Iterator[PartitionChangeRecord], count_max: int) -> tuple[PartitionChangeRecord, ...]:
    return tuple(change for _, change in zip(range(count_max), changes, strict=False))
