"""What `kafka_simulation` finds when a safeguard of the port for Kafka's clients is taken out: one substitution each.

The table in `docs/SAFEGUARDS.md` comes from here (from the root of the repository)::

    export PYTHONPATH=timeline:quorum:checkpoints
    python -m tests.sim.kafka_ablations --write
    python -m tests.sim.kafka_ablations --only "order" --seeds 1000  # look for one
"""

from __future__ import annotations

import sys
from typing import Any

from replog.log.producers.state import ProducerStateManager
from replog.protocol.handlers import fetch, produce
from replog.rpc.messages import ACKS_ALL
from replog.rpc.messages import ProduceRequest as NodeRequest
from replog.tcp.frames import OrderedAnswers
from tests.sim.ablation_table import AblationTable
from tests.sim.kafka_simulation import KafkaSimulation
from tests.sim.replication_ablations import CUTS, CUTS_AND_CRASHES, SEEDS_MAX, Ablation, find

_TOLD = fetch._told
BREAKS = {"stream_break": 0.02, "late": 0.5, "burst_max": 3, "pause": 0.2, "crash": 0.2}
"""Connections break, and what was on its way comes late."""

ISOLATED = {**CUTS, "min_isr": 3, "burst_max": 3}
"""The ISR gets too small while a batch waits for it: the next one is refused at once."""


def answers_as_they_come(self: OrderedAnswers[Any], number: int, answer: Any) -> list[Any]:
    """Whoever is ready is written, whatever was asked before."""
    _FINISH(self, number, None)
    return [] if answer is None else [answer]


_FINISH = OrderedAnswers.finish


def leader_alone(correlation_id: int, timeout_ms: int, acks: int, *rest: Any) -> NodeRequest:
    return NodeRequest(correlation_id, timeout_ms, 1 if acks == ACKS_ALL else acks, *rest)


def before_it_is_committed(*args: Any, **others: Any) -> Any:
    told = _TOLD(*args, **others)
    told.high_watermark += told.high_watermark >= 0
    return told


ABLATIONS = (
    Ablation(
        "sequences of producers",
        r".*duplicate: .*b'k\d-",
        ((ProducerStateManager, "check", lambda *_: None),),
        KafkaSimulation,
        BREAKS,
    ),
    Ablation(
        "answers in the order of the requests",
        ".*an answer to another request",
        ((OrderedAnswers, "finish", answers_as_they_come),),
        KafkaSimulation,
        ISOLATED,
    ),
    Ablation(
        "acks=all waits for the replicas",
        "R1 ",
        ((produce, "NodeRequest", leader_alone),),
        KafkaSimulation,
        CUTS_AND_CRASHES,
    ),
    Ablation(
        "the high watermark that a consumer is told",
        "f. is told the high watermark",
        ((fetch, "_told", before_it_is_committed),),
        KafkaSimulation,
    ),
)

TABLE = AblationTable("kafka", ABLATIONS, find, SEEDS_MAX)

if __name__ == "__main__":
    sys.exit(TABLE.main(__doc__))
