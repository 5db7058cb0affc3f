"""Codecs: what comes back is what was given, and what is no codec, or not its own, is refused with the next step."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from replog.codecs import Json, codec_of
from replog.errors import ConfigError


class Order(msgspec.Struct):
    table: str
    total: int


@dataclasses.dataclass
class Ride:
    taxi: str
    meters: list[int]


class Flight(pydantic.BaseModel):
    number: str = pydantic.Field(alias="flightNumber")
    seats: dict[str, int]


class Place(NamedTuple):
    x: int
    y: int


class Weather(TypedDict):
    celsius: float


class Reversed:
    """A codec of somebody's own."""

    def encode(self, value: str, /) -> bytes:
        return value[::-1].encode()

    def decode(self, data: bytes, /) -> str:
        return data.decode()[::-1]


CASES: list[tuple[Any, Any, bytes]] = [
    (str, "zwölf", "zwölf".encode()),
    (Order, Order("7", 12), b'{"table":"7","total":12}'),
    (Ride, Ride("a", [1, 2]), b'{"taxi":"a","meters":[1,2]}'),
    (Flight, Flight(flightNumber="UA1", seats={"a": 1}), b'{"flightNumber":"UA1","seats":{"a":1}}'),
    (Place, Place(1, 2), b"[1,2]"),
    (Weather, {"celsius": 1.5}, b'{"celsius":1.5}'),
    (Json(), {"b": [1], "a": None}, b'{"a":null,"b":[1]}'),  # equal dicts are equal keys
    (Json(list[Order]), [Order("7", 1)], b'[{"table":"7","total":1}]'),
    (Json(float), 3, b"3"),
    (Reversed(), "abc", b"cba"),
]


@pytest.mark.parametrize(("given", "value", "data"), CASES, ids=lambda case: str(case)[:30])
def test_a_value_comes_back(given: Any, value: Any, data: bytes) -> None:
    codec = codec_of("value", given)
    assert codec is not None
    assert codec.encode(value) == data
    assert codec.decode(data) == value


@pytest.mark.parametrize(
    ("given", "value"),
    [(str, b"a"), (str, "\ud800"), (Order, Ride("a", [])), (Flight, {"a": 1}), (Json(dict), [1]), (Json(), object())],
)
def test_what_is_not_its_own_is_not_encoded(given: Any, value: Any) -> None:
    codec = codec_of("value", given)
    assert codec is not None
    with pytest.raises((TypeError, ValueError)):
        codec.encode(value)


@pytest.mark.parametrize(
    ("given", "data"),
    [
        (str, b"\xff"),
        (Order, b'{"table":"7"}'),
        (Flight, b'{"seats":{}}'),
        (Json(), b"null"),  # the reader would take it for a tombstone
        (Json(int | None), b"null"),
        (Json(), b""),
    ],
)
def test_what_is_not_its_own_is_not_decoded(given: Any, data: bytes) -> None:
    codec = codec_of("value", given)
    assert codec is not None
    with pytest.raises(ValueError, match=r"."):  # those of msgspec and pydantic are such
        codec.decode(data)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (json.loads, "a function: a codec has two, encode and decode"),
        (Reversed, r"give an object of it, such as value=Reversed\(\)"),
        (int, r"Is it JSON\? replog.codecs.Json\(int\)"),
        ("json", "which is no codec. Give bytes, str, a class with fields"),
        (None, "which is no codec"),
    ],
)
def test_what_is_no_codec_is_refused_with_the_next_step(given: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        codec_of("value", given)


def test_bytes_need_no_codec() -> None:
    assert codec_of("value", bytes) is None
