"""What ops/ names is there: metrics with their labels, keys of the configuration, commands of the command line."""

from __future__ import annotations

import asyncio
import json
import re
import textwrap
import tomllib
from pathlib import Path

import pytest
from metrics_kit import scrape
from node_kit import config, node
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from test_broker_metrics_collector import READINGS

import replog
from replog.broker.metrics.collector import NodeCollector
from replog.config.server import ServerConfig
from replog.testing import SimulatedFileSystem
from tests.lint.page_commands import commands_in, wrong_in

OPS = Path(replog.__file__).parents[1] / "ops"
ALERTS = (OPS / "prometheus-alerts.yml").read_text(encoding="utf-8")
DASHBOARD = json.loads((OPS / "grafana-dashboard.json").read_text(encoding="utf-8"))
MANIFEST = (OPS / "kubernetes.yaml").read_text(encoding="utf-8")
OF_PROMETHEUS = {"job", "instance", "le", "quantile"}
METRIC = re.compile(r"\b(replog_\w+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\b(?:by|on) \(([\w, ]*)\)")
FOR_READERS = re.compile(r"\{\{ ?(?:\$labels\.)?(?!\$)(\w+) ?\}\}")


def expressions() -> list[str]:
    """Every expression of the rules and the dashboard."""
    lines = re.findall(r"^ +expr: (?:\|\n((?: {10,}.*\n)+)|(.*)$)", ALERTS, re.MULTILINE)
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return [*(block or line for block, line in lines), *panels]


@pytest.fixture
async def known() -> dict[str, set[str]]:
    """The labels of each metric, by the name of a sample: of a node that has produced and fetched, and of readings with groups."""
    async with node(SimulatedFileSystem(), config(metrics_listener="127.0.0.1:0")) as it:
        topic = await it.create()
        await it.produce(topic)
        assert await it.fetch(topic)
        _, text = await asyncio.to_thread(scrape, it.node.metrics_address)
    registry = CollectorRegistry()
    registry.register(NodeCollector(lambda: READINGS))
    found: dict[str, set[str]] = {}
    for family in [*text_string_to_metric_families(text), *registry.collect()]:
        for name, *labels in [(family.name,), *((sample.name, *sample.labels) for sample in family.samples)]:
            found.setdefault(name, set()).update(labels)
    return found


def test_every_metric_has_the_labels_that_are_asked_for(known: dict[str, set[str]]) -> None:
    assert len(expressions()) > 35
    for expression in expressions():
        named = METRIC.findall(expression)
        assert named or re.search("up{|process_|replog:", expression), expression
        for metric, selected in named:
            assert metric in known, metric
            assert set(re.findall(r"(\w+)[!=~]+", selected)) <= known[metric] | OF_PROMETHEUS, expression
        grouped = {label.strip() for labels in GROUPED.findall(expression) for label in labels.split(",") if label}
        assert not named or grouped <= set().union(*(known[metric] for metric, _ in named)) | OF_PROMETHEUS, expression


def test_what_readers_are_shown_is_a_label(known: dict[str, set[str]]) -> None:
    shown = FOR_READERS.findall(ALERTS + json.dumps(DASHBOARD))
    assert len(shown) > 20
    assert {*shown} <= set().union(*known.values()) | OF_PROMETHEUS


def test_actions_name_commands_that_there_are() -> None:
    commands = [*commands_in(ALERTS), *commands_in(MANIFEST)]
    probe = re.search(r"exec: \{ command: \[(.*)\] \}", MANIFEST)
    started = re.findall(
        r"(replog (?:server|storage) .*?)$", MANIFEST + (OPS / "replog.service").read_text(), re.MULTILINE
    )
    assert probe is not None
    assert len(commands) >= 6
    assert len(started) >= 3
    for command in [*commands, probe[1].replace(",", ""), *started]:
        assert wrong_in(command.partition("`")[0]) == [], command


def test_nodes_take_the_configuration_of_the_manifest() -> None:
    block = re.search(r"  server\.toml: \|\n((?:    .*\n)+)", MANIFEST)
    assert block is not None
    text = textwrap.dedent(block[1]).replace("@ID@", "2").replace("Set-A-Random-UUID-here", "DpzCqCVbR8GO6KcxTlCWGQ")
    config = ServerConfig.from_mapping(tomllib.loads(text))
    assert config.node_id == 2
    assert str(config.client_listener) == "0.0.0.0:9092"
    assert "value: /var/lib/replog/data }" in MANIFEST, "the folder of log.dirs, whose identity is looked for"
    assert [str(folder) for folder in config.log_dirs] == ["/var/lib/replog/data"]
