"""Every message of every version is what kio, an implementation that is not ours, reads and writes."""

from __future__ import annotations

import importlib
import os
import pkgutil
import traceback
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replog.errors import MalformedFrameError
from replog.wire import messages as package
from replog.wire.messages import apis
from replog.wire.primitives import Reader, Writer
from tests.unit.kafka import kio_messages as kio

EXAMPLES = int(os.environ.get("REPLOG_KAFKA_EXAMPLES", "4"))
"""Fresh ones in each run; campaigns have more of them."""

EXAMPLES_OF_EARLIER = max(1, EXAMPLES // 3)
"""Of a version before the last one: almost all of its fields, and what reads and writes them, are those of the last one."""

APIS = [each.name for each in pkgutil.iter_modules(package.__path__) if each.name not in {"headers", "apis"}]


def our_class(api: str, side: str) -> Any:
    module = importlib.import_module(f"replog.wire.messages.{api}")
    return getattr(module, "".join(map(str.capitalize, api.split("_"))) + side.capitalize())


SIDES = [(api, side) for api in APIS for side in ("request", "response")]
CASES = [(api, side, version) for api, side in SIDES for version in our_class(api, side).VERSIONS]


def read(cls: Any, data: bytes, version: int) -> Any:
    reader = Reader(memoryview(data))
    message = cls.read(reader, version)
    reader.finish()
    return message


def written(message: Any, version: int) -> bytes:
    writer = Writer()
    message.write(writer, version)
    return writer.joined()


def test_the_apis_of_level_1_are_there() -> None:
    keys = sorted(our_class(api, "request").API_KEY for api in APIS)
    groups = [8, 9, 10, 11, 12, 13, 14, 15, 16, 42, 47, 68, 69]
    transactions = [24, 25, 26, 27, 28, 65, 66]
    others = [
        17, 18, 19, 20, 21, 22, 23, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 43, 44, 45, 46, 48, 49, 50, 51, 55, 57, 60, 61, 64, 74, 75, 80, 81,
    ]  # fmt: skip
    assert keys == sorted([0, 1, 2, 3, *groups, *transactions, *others])
    assert all(our_class(api, "response").API_KEY == our_class(api, "request").API_KEY for api in APIS)


@pytest.mark.exhaustive
def test_kio_reads_and_writes_the_same() -> None:
    wrong: list[str] = []
    for api, side, version in CASES:
        try:
            compare(api, side, version)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one message, the others are told of too
            wrong.append(f"{api}-{side}-{version}: {''.join(traceback.format_exception(error, limit=0))}")
    assert not wrong, f"{len(wrong)} of {len(CASES)} messages\n" + "\n".join(wrong)


def compare(api: str, side: str, version: int) -> None:
    """Has kio write messages with any values: ours must hold the same values, and be the same bytes."""
    ours, theirs = our_class(api, side), kio.kio_class(api, side, version)
    count = EXAMPLES if version == ours.VERSIONS[-1] else EXAMPLES_OF_EARLIER

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(kio.messages(theirs))
    def check(message: Any) -> None:
        data = kio.written(message)
        found = read(ours, data, version)
        assert kio.differences(found, message) == []
        assert written(found, version) == data

    check()


@pytest.mark.exhaustive
@pytest.mark.parametrize(("api", "side"), SIDES)
def test_whatever_comes_is_a_message_or_malformed(api: str, side: str) -> None:
    """Goal: bytes cut off, changed, or never a message end in one error, and in no more memory than they have."""
    ours = our_class(api, side)

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: Any) -> None:
        version = data.draw(st.sampled_from(ours.VERSIONS))
        whole = kio.written(data.draw(kio.messages(kio.kio_class(api, side, version))))
        for cut in {0, len(whole) // 2, len(whole) - 1} - {len(whole), -1}:
            with pytest.raises(MalformedFrameError):
                read(ours, whole[:cut], version)
        with pytest.raises(MalformedFrameError):
            read(ours, whole + b"\0", version)
        changed = bytearray(whole)
        for _ in range(3):
            if changed:
                changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
        for attempt in (bytes(changed), data.draw(st.binary(max_size=200))):
            try:
                message = read(ours, attempt, version)
            except MalformedFrameError:
                continue
            assert read(ours, written(message, version), version) == message

    check()


def test_the_table_of_apis_tells_what_their_messages_say() -> None:
    assert set(apis.APIS) == set(APIS)
    for name, told in apis.APIS.items():
        request: Any = getattr(importlib.import_module(f"replog.wire.messages.{name}"), f"{told.name}Request")
        assert (told.key, told.versions, told.flexible_from) == (
            request.API_KEY,
            request.VERSIONS,
            request.FLEXIBLE_FROM,
        )
