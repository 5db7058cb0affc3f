"""The measurements of the guard: a dozen that stand for the whole, each a case of a scenario, at a size of about a second.

A scenario is imported when it is made: a tree that lacks what one of them needs can still run the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench.model import Scenario

if TYPE_CHECKING:
    from bench.systems.replog_brokers import ReplogBrokers

MIB = 2**20

Make = Callable[["Setting"], Scenario[Any]]
"""Makes a scenario; lines with the same one share what it has prepared."""


@dataclass(slots=True)
class Setting:
    """What the scenarios of one process are made with.

    Attributes:
        scale: The share of the usual size; less than 1 to try the guard out.
        started_brokers: Returns three nodes that serve; those of an earlier call, if there was one.
    """

    scale: float
    started_brokers: Callable[[], ReplogBrokers]

    def size(self, count: float) -> int:
        """Returns a size of this run."""
        return max(1, int(count * self.scale))


@dataclass(frozen=True, slots=True)
class Line:
    """One measurement.

    Attributes:
        name: Its name in the table, and for `--only`.
        make: The function that makes its scenario.
        system: The system of the scenario.
        only: The parameters of its case, as `bench run --only` takes them.
        figure: The metric that users feel.
        cpu: The metric that is CPU a unit of work.
        lower_is_better: Whether the figure is a time.
        waits_for_cpu_only: Whether the work waits for nothing but the processor: neither for a disk nor a timer nor for
            other processes.
        on_brokers: Whether it is measured at three nodes; lines that are share them.
        repeat: The number of repetitions in one process, whose median is one sample.
    """

    name: str
    make: Make
    system: str
    only: Mapping[str, str] = field(default_factory=dict)
    figure: str = "records_per_s"
    cpu: str = "cpu_s_per_gb"
    lower_is_better: bool = False
    waits_for_cpu_only: bool = False
    on_brokers: bool = False
    repeat: int = 3


def _controller(setting: Setting) -> Scenario[Any]:
    from bench.scenarios.controller import ControllerScenario

    return ControllerScenario(pipelined_count=setting.size(10_000))


def _send(setting: Setting) -> Scenario[Any]:
    return _produce(setting, one_by_one=True)


def _send_many(setting: Setting) -> Scenario[Any]:
    return _produce(setting, one_by_one=False)


def _produce(setting: Setting, *, one_by_one: bool) -> Scenario[Any]:
    from bench.scenarios.produce import ProduceScenario
    from bench.systems.replog_cluster import ReplogCluster

    system = ReplogCluster(setting.started_brokers(), one_by_one=one_by_one)
    return ProduceScenario(setting.size(32 * MIB), [100], [system], warm_up_share=setting.scale / 2)


def _consume(setting: Setting) -> Scenario[Any]:
    from bench.scenarios.consume import ConsumeScenario
    from bench.systems.replog_cluster import ReplogCluster

    system = ReplogCluster(setting.started_brokers())
    return ConsumeScenario(setting.size(64 * MIB), [100], [system], warm_up_share=setting.scale)


def _consume_typed(setting: Setting) -> Scenario[Any]:
    from bench.scenarios.consume_typed import ConsumeTypedScenario
    from bench.systems.replog_cluster import ReplogCluster

    return ConsumeTypedScenario(setting.size(64 * MIB), ReplogCluster(setting.started_brokers()))


def _acknowledge(setting: Setting) -> Scenario[Any]:
    from bench.scenarios.ack_latency import AckLatencyScenario
    from bench.systems.replog_cluster import ReplogCluster

    system = ReplogCluster(setting.started_brokers())
    return AckLatencyScenario(2 * setting.scale, [1_000], [system], warm_up_share=setting.scale / 4)


def _commit(setting: Setting) -> Scenario[Any]:
    from bench.scenarios.groups import GroupsScenario
    from bench.systems.group_brokers import GroupBrokers

    return GroupsScenario(setting.scale / 8, [GroupBrokers(setting.started_brokers())])


def _create_topics(setting: Setting) -> Scenario[Any]:
    from bench.scenarios.metadata_ops import MetadataOpsScenario
    from bench.systems.metadata_quorums import ReplogQuorum

    return MetadataOpsScenario(setting.scale / 4, [ReplogQuorum("replog", ["controller"])])


def _open_log_append(setting: Setting) -> Scenario[Any]:
    from bench.scenarios.open_log import OpenLogScenario

    return OpenLogScenario(setting.scale / 4)


def _open_log_read(setting: Setting) -> Scenario[Any]:
    from bench.scenarios.open_log import OpenLogScenario

    return OpenLogScenario(setting.scale / 2)


def _log_append(setting: Setting) -> Scenario[Any]:
    from bench.scenarios.log_append import LogAppendScenario

    return LogAppendScenario(setting.size(64 * MIB))


def _codec(setting: Setting) -> Scenario[Any]:
    from bench.scenarios.codec import CodecScenario

    return CodecScenario(0.2 * setting.scale)


def _process(_: Setting) -> Scenario[Any]:
    from bench.scenarios.process_start import ProcessStartScenario

    return ProcessStartScenario()


_REQUESTS: Mapping[str, Any] = {"figure": "requests_per_s", "cpu": "cpu_us_per_request", "waits_for_cpu_only": True}
_CODEC: Mapping[str, Any] = {"cpu": "cpu_ns_per_record", "waits_for_cpu_only": True}
_START: Mapping[str, Any] = {
    "figure": "took_ms",
    "cpu": "cpu_ms",
    "lower_is_better": True,
    "waits_for_cpu_only": True,
    "repeat": 1,
}
_ONE_OFFSET = {"work": "commits", "offsets": "1"}
_FSYNCED = {"work": "append", "flush": "always", "tasks": "64", "sync_delay_ms": "0"}

LINES: Mapping[str, Line] = {
    line.name: line
    for line in (
        Line("controller-1", _controller, "pipelined", {"replicas": "1"}, **_REQUESTS),
        Line("controller-3", _controller, "pipelined", {"replicas": "3"}, **_REQUESTS),
        Line("codec-encode", _codec, "replog", {"operation": "encode", "record_bytes": "100"}, **_CODEC),
        Line("codec-decode", _codec, "replog", {"operation": "decode", "record_bytes": "100"}, **_CODEC),
        Line(
            "log-append",
            _log_append,
            "replog",
            {"record_bytes": "1024", "batch_kib": "16"},
            cpu="cpu_us_per_batch",
            waits_for_cpu_only=True,
        ),
        Line("open-log-append", _open_log_append, "replog", _FSYNCED),
        Line("open-log-read", _open_log_read, "replog", {"work": "read"}, waits_for_cpu_only=True),
        Line("import", _process, "replog", {"until": "imported"}, **_START),
        Line("start", _process, "replog", {"until": "listening"}, **_START),
        Line(
            "create-topic",
            _create_topics,
            "replog",
            {"work": "pipelined"},
            figure="topics_per_s",
            cpu="cpu_us_per_topic",
        ),
        Line("send", _send, "replog-send", on_brokers=True),
        Line("send-many", _send_many, "replog", on_brokers=True),
        Line("consume-batches", _consume, "replog", {"as": "batches"}, on_brokers=True),
        Line("consume-records", _consume, "replog", {"as": "records"}, on_brokers=True),
        Line("consume-json", _consume_typed, "replog", {"value": "json"}, on_brokers=True),
        Line(
            "acknowledge",
            _acknowledge,
            "replog",
            figure="ack_p50_ms",
            cpu="cpu_us_per_record",
            lower_is_better=True,
            on_brokers=True,
            repeat=1,
        ),
        Line(
            "commit-offsets",
            _commit,
            "replog",
            _ONE_OFFSET,
            figure="commits_per_s",
            cpu="brokers_cpu_us_per_commit",
            on_brokers=True,
        ),
    )
}
"""All, by their names."""
