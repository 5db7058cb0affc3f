"""Large requests are asked for in parts, so that none holds the controller's loop, and others have their turn in between.

Each thing that such a request names has a result of its own, and needs none of the others.  A part is a request like any
other one, whose records are one atomic change.  Things of which one is named several times stay together, for they are refused
for that.  When a part is refused as a whole, its things and those behind it get the error as their result: what came before is
done, and is told as done.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from replog.controller.requests import (
    AlterConfigs,
    AlterConfigsResponse,
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResponse,
    ClientChange,
    ControllerResponse,
    CreateTopics,
    CreateTopicsResponse,
    DeleteTopics,
    DeleteTopicsResponse,
    ElectLeaders,
    ElectLeadersResponse,
    NamedPartition,
    NewTopic,
    PartitionResult,
)
from replog.controller.rights import configs_failed, id_failed, name_failed, topic_failed
from replog.errors import ErrorCode, ReplogError
from replog.errors.from_code import error_code_of
from replog.metadata.records import ElectionType

PART = 1_000
"""Records that a part makes, by what it names: some 10 ms."""

WHOLE_MAX = 10_000
"""Things that a request may name; one with more is refused as a whole (`ControllerConfig.max_records_per_request`)."""

_THROTTLE_TIME = "throttle_time_ms"
"""The field of answers that tells a client how long to wait; of several parts the longest."""


class _Kind(NamedTuple):
    """How requests of one class are divided.

    Attributes:
        things: The name of the field of what a request names.
        key: The function that says of two things whether they are the same; None: each is named once, and makes one record.
        weight: The function that says how many records one of them makes, about.
        failed: The function that makes the result of one of them from an error.
        answer: The class of the answer; its first field has the results, and none beside `_THROTTLE_TIME` follows.
        left_out: The code of results that are not told; None: all are.
    """

    things: str
    key: Callable[[Any], Hashable] | None
    weight: Callable[[Any], int]
    failed: Callable[[Any, ReplogError], Any]
    answer: type
    left_out: ErrorCode | None = None


def _one(_thing: Any) -> int:
    return 1


def _itself(thing: Any) -> Hashable:
    return thing  # type: ignore[no-any-return]


def _partition_key(item: Any) -> Hashable:
    return item.topic, item.partition_id


def _partition_failed(item: Any, error: ReplogError) -> PartitionResult:
    return PartitionResult(item.topic, item.partition_id, error_code_of(error), str(error))


def _resource_key(resource: Any) -> Hashable:
    return resource.resource_type, resource.resource_name


def _resource_weight(resource: Any) -> int:
    return max(1, len(resource.configs))


def _topic_key(topic: Any) -> Hashable:
    return topic.name  # type: ignore[no-any-return]


def _topic_weight(topic: NewTopic) -> int:
    return 1 + len(topic.configs) + max(1, topic.num_partitions, len(topic.assignments))


_PARTITIONS = _Kind("items", _partition_key, _one, _partition_failed, AlterPartitionReassignmentsResponse)
_ELECTIONS = _PARTITIONS._replace(things="partitions", key=None, answer=ElectLeadersResponse)
_NEEDED_ELECTIONS = _ELECTIONS._replace(left_out=ErrorCode.ELECTION_NOT_NEEDED)
_CONFIGS = _Kind("resources", _resource_key, _resource_weight, configs_failed, AlterConfigsResponse)
_CREATIONS = _Kind("topics", _topic_key, _topic_weight, topic_failed, CreateTopicsResponse)
_DELETIONS = _Kind("names", _itself, _one, name_failed, DeleteTopicsResponse)
_DELETIONS_BY_ID = _DELETIONS._replace(things="topic_ids", failed=id_failed)


def _kind_of(request: ClientChange) -> _Kind | None:
    """Returns how a request is divided; None: it stays whole."""
    match request:
        case AlterPartitionReassignments():
            return _PARTITIONS
        case ElectLeaders(partitions=tuple()):
            return _ELECTIONS
        case AlterConfigs():
            return _CONFIGS
        case CreateTopics(validate_only=False):
            return _CREATIONS
        case DeleteTopics(topic_ids=()):
            return _DELETIONS
        case DeleteTopics(names=()):
            return _DELETIONS_BY_ID
        case _:
            return None


class DividedRequest:
    """A large request in parts; made by `divided`.

    Attributes:
        requests: The parts, in the order in which they are asked for.
    """

    def __init__(self, request: ClientChange, kind: _Kind, places: Sequence[Sequence[int]]) -> None:
        self._kind = kind
        self._things: Sequence[Any] = getattr(request, kind.things)
        self._places = places
        self.requests: list[ClientChange] = [
            replace(request, **{kind.things: tuple(self._things[place] for place in part)}) for part in places
        ]

    def answer(self, outcomes: Sequence[ControllerResponse | ReplogError]) -> ControllerResponse:
        """Returns the answer to the whole request.

        Args:
            outcomes: The answers to the parts in order; the last one may be the error for it and all behind it.
        """
        results: dict[int, Any] = {}
        throttle_time_ms = 0
        for number, part in enumerate(self._places):
            outcome = outcomes[min(number, len(outcomes) - 1)]
            if isinstance(outcome, ReplogError):
                results |= {place: self._kind.failed(self._things[place], outcome) for place in part}
            else:
                told = getattr(outcome, outcome.__struct_fields__[0])
                throttle_time_ms = max(throttle_time_ms, getattr(outcome, _THROTTLE_TIME, 0))
                results |= zip(part, told, strict=True)
        in_order = (results[place] for place in range(len(results)))
        answer: ControllerResponse = self._kind.answer(
            tuple(result for result in in_order if result.error is not self._kind.left_out)
        )
        return replace(answer, **{_THROTTLE_TIME: throttle_time_ms}) if throttle_time_ms else answer


def divided(
    request: ClientChange, elections_needed: Callable[[ElectionType], tuple[NamedPartition, ...]]
) -> DividedRequest | None:
    """Returns a large request in parts; None: it is asked for as a whole.

    Args:
        request: The request.
        elections_needed: The function that names the partitions of a request for all elections that are needed.
    """
    kind = _kind_of(request)
    if isinstance(request, ElectLeaders):
        is_all = request.partitions is None
        named = elections_needed(request.election_type) if request.partitions is None else request.partitions
        request = replace(request, partitions=tuple(dict.fromkeys(named)))
        kind = _NEEDED_ELECTIONS if is_all else kind
    if kind is None:
        return None
    things: Sequence[Any] = getattr(request, kind.things)
    if len(things) > WHOLE_MAX or sum(map(kind.weight, things)) <= PART:
        return None
    places = _parts(things, kind)
    return DividedRequest(request, kind, places) if len(places) > 1 else None


def _parts(things: Sequence[Any], kind: _Kind) -> list[list[int]]:
    """Returns the places of the things of each part."""
    if kind.key is None:
        return [list(range(start, min(start + PART, len(things)))) for start in range(0, len(things), PART)]
    same: dict[Hashable, list[int]] = {}
    for place, thing in enumerate(things):
        same.setdefault(kind.key(thing), []).append(place)
    parts, weight = list[list[int]](), PART
    for places in same.values():
        added = sum(kind.weight(things[place]) for place in places)
        if weight + added > PART:
            parts.append([])
            weight = 0
        parts[-1] += places
        weight += added
    return parts
