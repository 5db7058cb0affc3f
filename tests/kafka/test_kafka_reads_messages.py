"""Kafka's own classes read every message that we write, with the same values, and write it in the same bytes."""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka_install import KafkaInstall
from message_json import differences

from replog.wire.messages import apis
from replog.wire.primitives import Reader, Writer
from tests.unit.kafka import kio_messages as kio

EXAMPLES = 3


def some_messages() -> Iterator[tuple[str, int, Any]]:
    """Messages of every API and version, with their names in Kafka."""
    rng = random.Random()
    for api in apis.APIS:
        module = importlib.import_module(f"replog.wire.messages.{api}")
        for side in ("request", "response"):
            name = "".join(map(str.capitalize, api.split("_"))) + side.capitalize()
            cls = getattr(module, name)
            for version in cls.VERSIONS:
                for _ in range(EXAMPLES):
                    data = kio.written(kio.any_message(kio.kio_class(api, side, version), rng))
                    yield name, version, cls.read(Reader(memoryview(data)), version)


def test_kafka_reads_and_writes_the_same(kafka: KafkaInstall, tmp_path: Path) -> None:
    found = list(some_messages())
    lines = []
    for name, version, message in found:
        writer = Writer()
        message.write(writer, version)
        lines.append(f"{name} {version} {writer.joined().hex()}")
    path = tmp_path / "messages"
    path.write_text("\n".join(lines))
    answers = kafka.run("MessageReader", str(path)).output.rstrip("\n").split("\n")
    assert len(answers) == len(lines) > 600
    wrong = []
    for (name, version, message), line, answer in zip(found, lines, answers, strict=True):
        data, _, text = answer.partition(" ")
        wrong += [] if data == line.split(" ")[2] else [f"{name} {version}: other bytes: {line} / {data}"]
        wrong += differences(message, json.loads(text), f"{name} {version}")
    assert wrong[:20] == []
