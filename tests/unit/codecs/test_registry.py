"""Codecs whose schemas are in a registry, against a small one of our own over HTTP."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from typing import cast

import msgspec
import pydantic
import pytest

from replog.codecs import registry as under_test
from replog.codecs.registry import SchemaRegistry
from replog.errors import ConfigError, RegistryNotAvailableError
from tests.schema_registry import Registry, served_registry


class Order(msgspec.Struct):
    table: str
    total: int


class Model(pydantic.BaseModel):
    total: int


FIELDS = [{"name": "table", "type": "string"}, {"name": "total", "type": "int"}]
ORDER = json.dumps({"type": "record", "name": "Order", "fields": FIELDS})
OLDER = json.dumps({"type": "record", "name": "Order", "fields": [*FIELDS, {"name": "gone", "type": "bytes"}]})


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Registry, SchemaRegistry]]:
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(under_test, "PAUSE_S", 0.0)
    with served_registry() as registry:
        yield registry, SchemaRegistry(registry.url)


def test_json_has_the_id_of_its_schema_which_is_asked_for_once(served: tuple[Registry, SchemaRegistry]) -> None:
    registry, client = served
    codec = client.json(Order, subject="orders/value")
    assert [codec.encode(Order("7", number)) for number in range(2)] == [
        b'\x00\x00\x00\x00\x01{"table":"7","total":%d}' % number for number in range(2)
    ]
    assert [codec.decode(codec.encode(Order("7", 1))) for _ in range(2)] == [Order("7", 1)] * 2
    assert registry.asked == ["/subjects/orders%2Fvalue/versions", "/schemas/ids/1"]
    assert registry.schemas[0]["schemaType"] == "JSON"
    assert set(json.loads(registry.schemas[0]["schema"])["$defs"]["Order"]["properties"]) == {"table", "total"}
    models = client.json(Model, subject="models")
    assert models.decode(models.encode(Model(total=1))) == Model(total=1)


def test_avro_is_read_by_the_schema_with_which_it_was_written(served: tuple[Registry, SchemaRegistry]) -> None:
    registry, client = served
    older = client.avro(OLDER, subject="orders-value")
    written = older.encode({"table": "7", "total": 12, "gone": b"x"})
    assert (written, "schemaType" in registry.schemas[0]) == (b"\x00\x00\x00\x00\x01\x027\x18\x02x", False)
    newer = client.avro(ORDER, subject="orders-value", kind=Order)
    assert newer.decode(written) == Order("7", 12)
    assert newer.encode(Order("7", 12)) == b"\x00\x00\x00\x00\x02\x027\x18"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not with 0 and the id"),
        (b"\x01\x00\x00\x00\x01{}", "not with 0 and the id"),
        (b"\x00\x00\x00\x00\x09{}", "404"),
        (b"\x00\x00\x00\x00\x01\x027", "AVRO, not of JSON"),
    ],
)
def test_bytes_of_no_such_schema_are_not_decoded(
    served: tuple[Registry, SchemaRegistry], data: bytes, said: str
) -> None:
    client = served[1]
    avro = client.avro(ORDER, subject="orders-value")
    written = avro.encode({"table": "7", "total": 1})
    with pytest.raises(ValueError, match=said):
        client.json(Order, subject="orders-value").decode(data)
    for wrong in (written + b"x", written[:-1]):
        with pytest.raises((ValueError, EOFError, IndexError)):
            avro.decode(wrong)
    with pytest.raises((ValueError, TypeError)):
        avro.encode({"table": "7"})


def test_a_registry_that_does_not_answer_is_no_fault_of_the_record(served: tuple[Registry, SchemaRegistry]) -> None:
    registry, client = served
    codec = client.json(Order, subject="orders-value")
    for status in (500, 401, 404):
        registry.refusal = status
        with pytest.raises(RegistryNotAvailableError, match=f"{status} .*see that it runs"):
            codec.encode(Order("7", 1))
    registry.refusal = 409
    with pytest.raises(ValueError, match="answers /subjects/orders-value/versions with 409"):
        codec.encode(Order("7", 1))
    registry.refusal = 0
    assert codec.decode(codec.encode(Order("7", 1))) == Order("7", 1)


def test_who_has_failed_is_not_asked_again_at_once(
    served: tuple[Registry, SchemaRegistry], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, client = served
    monkeypatch.setattr(under_test, "PAUSE_S", 3_600.0)
    registry.refusal = 503
    for _ in range(3):
        with pytest.raises(RegistryNotAvailableError, match="503"):
            client.schema(1)
    assert len(registry.asked) == 1


def test_a_header_that_authenticates_is_sent_and_not_shown(served: tuple[Registry, SchemaRegistry]) -> None:
    registry = served[0]
    client = SchemaRegistry(registry.url, headers={"Authorization": "Bearer canary"})
    codec = client.json(Order, subject="orders-value")
    codec.encode(Order("7", 1))
    assert registry.authorizations == ["Bearer canary"]
    registry.refusal = 401
    with pytest.raises(RegistryNotAvailableError) as caught:
        client.schema(9)
    told = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    frames = [str(frame.locals) for frame in told.stack if "/replog/codecs/" in frame.filename]
    assert frames
    shown = [repr(client), repr(vars(client)), repr(codec), repr(vars(codec)), str(caught.value), *frames]
    assert [text for text in shown if "canary" in text] == []


def test_settings_that_mean_nothing_are_refused() -> None:
    for url in ("file:///etc/passwd", "localhost:8081"):
        with pytest.raises(ConfigError, match="must begin with http"):
            SchemaRegistry(url)
    for url in ("http://user:canary@localhost:8081", "user:canary@localhost:8081"):
        with pytest.raises(ConfigError, match="give headers") as caught:
            SchemaRegistry(url)
        assert "canary" not in f"{caught.value}{caught.value!r}{vars(caught.value)}"
    for value in ("Bearer canary\n", "Bearer canary\xe9", cast("str", b"canary")):
        with pytest.raises(ConfigError, match="the header Authorization has a value") as caught:
            SchemaRegistry("http://localhost:8081", headers={"Authorization": value})
        assert "canary" not in f"{caught.value}{caught.value!r}{vars(caught.value)}"
    registry = SchemaRegistry("http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="the schema of Avro cannot be read"):
        registry.avro('{"type": "recor"}', subject="s")
    with pytest.raises(ConfigError, match="which has no fields"):
        registry.json(str, subject="s")
