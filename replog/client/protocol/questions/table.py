"""All questions that clients put to brokers in Kafka's messages, by the class of the question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from replog.client.protocol.asking import Question
from replog.client.protocol.questions import (
    cluster,
    configs,
    group_descriptions,
    group_members,
    group_offsets,
    offsets,
    replicas,
    topics,
)

QUESTIONS: Final[Mapping[type, Question]] = {
    question: ask
    for room in (offsets, topics, configs, replicas, cluster, group_members, group_offsets, group_descriptions)
    for question, ask in room.QUESTIONS.items()
}
