"""FindCoordinator: says that there are no groups and no transactions here, to whoever looks for their coordinator.

Why it is served at all: librdkafka sends uncompressed what it was told to compress by lz4 where a broker does not have it.  A
consumer of librdkafka's looks for its group also where it is assigned its partitions, and hands out any error that is not
one of the moment instead of a record; so groups are told COORDINATOR_NOT_AVAILABLE, and who subscribes waits.
"""

from __future__ import annotations

from replog.errors import ErrorCode
from replog.kafka.handlers.node import Call, Failure, KafkaNode
from replog.kafka.handlers.produce import TRANSACTIONAL
from replog.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

SEVERAL_FROM = 4
"""The first version in which several keys are asked for at once."""

TRANSACTION = 1
"""The type of a key that is a transactional id; 0 is a group."""

NO_GROUPS = (
    "there are no consumer groups here yet: assign partitions instead of subscribing, and keep offsets yourself"
    " (enable.auto.commit=false)"
)


async def find_coordinator(_node: KafkaNode, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    """Returns that the keys have no coordinator, and what to do without."""
    if request.key_type == TRANSACTION:
        failure = Failure(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TRANSACTIONAL)
    else:
        failure = Failure(ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_GROUPS)
    return _refused(request, failure, of_several=call.version >= SEVERAL_FROM)


def refuse_find_coordinator(request: FindCoordinatorRequest, failure: Failure) -> FindCoordinatorResponse:
    """Returns the answer to a request that failed as a whole."""
    return _refused(request, failure, of_several=bool(request.coordinator_keys))


def _refused(request: FindCoordinatorRequest, failure: Failure, *, of_several: bool) -> FindCoordinatorResponse:
    coordinators = [
        FindCoordinatorResponse.Coordinator(key, -1, "", -1, failure.code, failure.message)
        for key in request.coordinator_keys
    ]
    if of_several:
        return FindCoordinatorResponse(coordinators=coordinators)
    return FindCoordinatorResponse(error_code=failure.code, error_message=failure.message, node_id=-1, port=-1)
