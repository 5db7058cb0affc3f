"""What a broker and a client load before they do anything: libraries that few of them need stay where they are used."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

EXTRAS = ("prometheus_client", "re2", "typer", "rich", "pyarrow", "pyspark", "cramjam", "fastavro", "pythonjsonlogger")
OTHERS = ("replog.cli", "replog.spark", "replog.testing", "replog_chaos", "difflib", "multiprocessing")
NODES = (
    "grpc",
    "replog.broker",
    "replog.cluster",
    "replog.config",
    "replog.protocol.served",
    "replog.log",
    "replog_quorum",
    "replog_timeline",
)
LATE = ("replog.coordinator.group_machine", "replog.wire.messages.join_group", "replog.protocol.handlers.configs")
"""What a node within a program loads when it is asked for it, and a process of its own before it serves."""

COUNTED = """
import gc, json, sys
classes = [each for each in gc.get_objects() if isinstance(each, type) and "__dataclass_fields__" in vars(each)]
ours = {f"{each.__module__}.{each.__qualname__}" for each in classes if each.__module__.startswith("replog")}
print(json.dumps([sorted(sys.modules), sorted(ours)]))
"""


def loaded(code: str) -> tuple[set[str], list[str]]:
    """The modules that are there, and our dataclasses: each costs half a millisecond of every start."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code + COUNTED]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    modules, dataclasses = json.loads(done.stdout)
    return set(modules), dataclasses


def test_a_broker_loads_no_extra_and_makes_few_dataclasses() -> None:
    modules, dataclasses = loaded("from replog.broker.__main__ import load_late_modules\nload_late_modules()")
    assert modules >= {"replog.broker.node.node", "tomllib", *LATE}
    assert modules.isdisjoint((*EXTRAS, *OTHERS, "replog.client", "replog.cluster"))
    assert len(dataclasses) <= 1, f"a class that is only fields is a msgspec.Struct: {dataclasses}"


@pytest.mark.parametrize("name", ["Admin", "Consumer", "Producer"])
def test_a_client_loads_nothing_of_a_node(name: str) -> None:
    modules, dataclasses = loaded(f"import replog\nreplog.{name}")
    assert "replog.client.cluster.view" in modules
    assert modules.isdisjoint((*EXTRAS, *OTHERS, *NODES, "google.protobuf", "replog.wire.messages.join_group"))
    assert dataclasses == []


@pytest.mark.parametrize(
    ("name", "others"), [("Producer", "consumer"), ("Consumer", "producer"), ("SyncProducer", "consumer")]
)
def test_a_client_loads_no_other_one(name: str, others: str) -> None:
    modules, _ = loaded(f"import replog\nreplog.client.{name}")
    assert not [module for module in modules if module.startswith(f"replog.client.{others}.")]
    assert modules.isdisjoint(("replog.wire.messages.create_topics", "replog.wire.messages.describe_configs"))


def test_a_broker_within_a_program_loads_no_grpc_and_no_clients() -> None:
    """Goal: a test that starts one waits for its records, not for what it never uses."""
    modules, dataclasses = loaded("import replog\nwith replog.embedded(): pass")
    assert dataclasses == []
    assert "replog.rpc.tcp.transport" in modules
    assert modules.isdisjoint(
        (
            *EXTRAS,
            *LATE,
            "grpc",
            "tomllib",
            "dataclasses",
            "encodings.idna",
            "replog.client.cluster.view",
            "replog.cluster.local_cluster",
        )
    )


def test_the_command_line_loads_neither_clients_nor_nodes_before_a_command_needs_them() -> None:
    modules, dataclasses = loaded("import replog.cli.app")
    assert modules.isdisjoint((*NODES, "replog.client", "google.protobuf", "pyarrow", "pyspark", "rich.table"))
    assert not [name for name in modules if name.startswith("replog.cli.commands.")]
    assert dataclasses == []


def test_warnings_are_seen_where_logging_is_not_set_up() -> None:
    """Goal: what a client has to say is not lost because nobody has asked for it."""
    code = "import logging, replog; logging.getLogger('replog.client').warning('seen')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "seen\n"
