"""Topics that are created because a client has asked for them, if `auto.create.topics.enable` is set."""

from __future__ import annotations

from collections.abc import Sequence

from replog.controller.requests import CreateTopics, CreateTopicsResponse, NewTopic
from replog.errors import ErrorCode, ReplogError
from replog.metadata.topic_names import INTERNAL_TOPICS
from replog.protocol.handlers.node import KafkaNode

TOGETHER_MAX = 100
"""Topics that one request for metadata makes at most; a client asks again for the others."""

WAIT_MS = 5_000
"""How long a request for metadata waits for them: it also asks for topics that are there."""


async def create_missing(node: KafkaNode, names: Sequence[str]) -> dict[str, ErrorCode]:
    """Creates topics with the partitions and replicas that the cluster gives by default.

    Args:
        node: The node that was asked.
        names: The names of topics that it does not know.

    Returns:
        The code that the client is told of each: LEADER_NOT_AVAILABLE if the topic will be there soon; else why it will not.
    """
    own = [name for name in names if name not in INTERNAL_TOPICS]  # coordinators make these, in their own way
    if not own:
        return {}
    wanted = CreateTopics(tuple(map(NewTopic, own[:TOGETHER_MAX])))
    try:
        created = await node.change(wanted, CreateTopicsResponse, min(WAIT_MS, node.request_timeout_ms))
    except ReplogError:  # the client asks again
        return {}
    return {result.name: _told(result.error) for result in created.topics}


def _told(code: ErrorCode) -> ErrorCode:
    """Returns the code for a topic; one that exists by now is no error."""
    is_there = code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
    return ErrorCode.LEADER_NOT_AVAILABLE if is_there else code
