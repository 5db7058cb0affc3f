"""Every message of every version is what kio, an implementation that is not ours, reads and writes."""

from __future__ import annotations

import importlib
import os
import pkgutil
import random
import traceback
from typing import Any

import pytest

from replog.errors import MalformedFrameError
from replog.wire import messages as package
from replog.wire.messages import apis
from replog.wire.primitives import Reader, Writer
from tests.unit.kafka import kio_messages as kio

EXAMPLES = int(os.environ.get("REPLOG_KAFKA_EXAMPLES", "3"))
"""Fresh ones of each version in each run; campaigns have more of them."""

SEED = os.environ.get("REPLOG_SEED") or str(random.SystemRandom().getrandbits(32))

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
    assert not wrong, f"{len(wrong)} of {len(CASES)} messages; REPLOG_SEED={SEED} repeats them\n" + "\n".join(wrong)


def compare(api: str, side: str, version: int) -> None:
    """Has kio write messages with any values: ours must hold the same values, and be the same bytes."""
    ours, theirs = our_class(api, side), kio.kio_class(api, side, version)
    rng = random.Random(f"{SEED} {api} {side} {version}")
    for _ in range(EXAMPLES):
        message = kio.any_message(theirs, rng)
        data = kio.written(message)
        found = read(ours, data, version)
        assert kio.differences(found, message) == []
        assert written(found, version) == data


@pytest.mark.exhaustive
@pytest.mark.parametrize(("api", "side"), SIDES)
def test_whatever_comes_is_a_message_or_malformed(api: str, side: str) -> None:
    """Goal: bytes cut off, changed, or never a message end in one error, and in no more memory than they have."""
    rng = random.Random(f"{SEED} {api} {side}")
    try:
        for version in our_class(api, side).VERSIONS:
            for _ in range(EXAMPLES):
                check_damaged(api, side, version, rng)
    except BaseException as error:
        error.add_note(f"REPLOG_SEED={SEED} repeats it")
        raise


def check_damaged(api: str, side: str, version: int, rng: random.Random) -> None:
    ours = our_class(api, side)
    whole = kio.written(kio.any_message(kio.kio_class(api, side, version), rng))
    for cut in {0, len(whole) // 2, len(whole) - 1} - {len(whole), -1}:
        with pytest.raises(MalformedFrameError):
            read(ours, whole[:cut], version)
    with pytest.raises(MalformedFrameError):
        read(ours, whole + b"\0", version)
    changed = bytearray(whole)
    for _ in range(3):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    for attempt in (bytes(changed), rng.randbytes(rng.randrange(200))):
        try:
            message = read(ours, attempt, version)
        except MalformedFrameError:
            continue
        again = read(ours, written(message, version), version)
        assert again == message or repr(again) == repr(message)  # no NaN is equal to itself


def test_the_table_of_apis_tells_what_their_messages_say() -> None:
    assert set(apis.APIS) == set(APIS)
    for name, told in apis.APIS.items():
        request: Any = getattr(importlib.import_module(f"replog.wire.messages.{name}"), f"{told.name}Request")
        assert (told.key, told.versions, told.flexible_from) == (
            request.API_KEY,
            request.VERSIONS,
            request.FLEXIBLE_FROM,
        )
