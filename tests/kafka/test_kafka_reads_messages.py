"""Kafka's own classes read every message that we write, with the same values, and write it in the same bytes."""

from __future__ import annotations

import base64
import dataclasses
import importlib
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, Phase, given, settings
from kafka_install import KafkaInstall

from replog.kafka import messages as package
from replog.kafka.wire import Reader, Writer
from tests.unit.kafka import kio_messages as kio

EXAMPLES = 3
APIS = [module.name for module in pkgutil.iter_modules(package.__path__) if module.name != "headers"]


def some_messages() -> Iterator[tuple[str, int, Any]]:
    """Messages of every API and version, with their names in Kafka."""
    for api in APIS:
        module = importlib.import_module(f"replog.kafka.messages.{api}")
        for side in ("request", "response"):
            name = "".join(map(str.capitalize, api.split("_"))) + side.capitalize()
            cls = getattr(module, name)
            for version in cls.VERSIONS:
                for message in _examples(kio.kio_class(api, side, version)):
                    yield name, version, cls.read(Reader(memoryview(kio.written(message))), version)


def _examples(theirs: Any) -> list[Any]:
    made: list[Any] = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(kio.messages(theirs))
    def make(message: Any) -> None:
        made.append(message)

    make()
    return made


def json_name(name: str) -> str:
    first, *others = name.removesuffix("_").split("_")
    return first + "".join(map(str.capitalize, others))


def differences(ours: Any, theirs: Any, path: str) -> list[str]:
    """Fields of our message that are not those of Kafka's JSON."""
    found = []
    unseen = set(theirs)
    for each in dataclasses.fields(ours):
        value, name = getattr(ours, each.name), json_name(each.name)
        if name in theirs:
            unseen.discard(name)
            found += _difference(value, theirs[name], f"{path}.{name}")
        elif f"{name}SizeInBytes" in theirs:
            unseen.discard(f"{name}SizeInBytes")
            found += _difference(0 if value is None else len(value), theirs[f"{name}SizeInBytes"], f"{path}.{name}")
        else:  # the version lacks the field, or it is tagged and has its default
            default = each.default if each.default_factory is dataclasses.MISSING else each.default_factory()
            found += [] if value == default or _is_bare(value) else [f"{path}.{name} is missing: {value!r}"]
    return found + [f"{path}.{name} is ours not" for name in sorted(unseen)]


def _is_bare(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and value == type(value)()


def _difference(ours: Any, theirs: Any, path: str) -> list[str]:
    if dataclasses.is_dataclass(ours):
        return differences(ours, theirs, path)
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [
            line for n, pair in enumerate(zip(ours, theirs, strict=True)) for line in _difference(*pair, f"{path}[{n}]")
        ]
    if isinstance(ours, UUID):
        ours = base64.urlsafe_b64encode(ours.bytes).rstrip(b"=").decode()
    elif isinstance(ours, bytes | memoryview):
        ours = base64.b64encode(ours).decode()
    return [] if ours == theirs else [f"{path}: {ours!r} is not {theirs!r}"]


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
