"""Metadata and rules of schemas, configurations, and every method of Confluent's client, against a registry of our own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    MetadataTags,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError

import replog
from replog.codecs.registry import SchemaRegistry
from replog.registry import RegistryServer

FIELD = {"name": "x", "type": "int"}
OPTIONAL = {"name": "y", "type": "string", "default": ""}
OF_THE_PROCESS = {"close", "config", "clear_caches", "clear_latest_caches", "new_client"}
"""What asks no registry."""


def avro(*fields: dict[str, Any], metadata: Metadata | None = None, rules: RuleSet | None = None) -> Schema:
    text = json.dumps({"type": "record", "name": "A", "fields": fields or [FIELD]}, separators=(",", ":"))
    return Schema(text, "AVRO", [], metadata, rules)


def metadata(**properties: str) -> Metadata:
    return Metadata(MetadataTags({"A.x": ["PII"]}), MetadataProperties(properties), ["owner"])


def rule(name: str, mode: RuleMode, *, disabled: bool = False) -> Rule:
    return Rule(name, None, RuleKind.CONDITION, mode, "CEL", None, None, "true", None, "NONE", disabled=disabled)


WRITTEN = RuleSet([], [rule("checked", RuleMode.WRITE)])
READ = RuleSet([], [rule("read", RuleMode.READ), rule("off", RuleMode.WRITE, disabled=True)])


def refused(function: Any, *arguments: Any, **more: Any) -> int:
    with pytest.raises(SchemaRegistryError) as caught:
        function(*arguments, **more)
    return int(caught.value.error_code)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with replog.embedded() as broker, RegistryServer(broker.bootstrap_servers, listen="127.0.0.1:0") as server:
        yield server.url


def client_of(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url, "max.retries": 0})


class Noted:
    """A client whose methods that were called are known; it asks anew what it has asked before."""

    def __init__(self, client: SchemaRegistryClient) -> None:
        self.client = client
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        self.client.clear_caches()  # type: ignore[no-untyped-call]  # theirs
        return getattr(self.client, name)


def use_every_method(url: str) -> None:
    with client_of(url) as client:
        it = Noted(client)
        first, second = avro(metadata=metadata(owner="me")), avro(FIELD, OPTIONAL)
        assert it.register_schema("a", first) == 1
        whole = it.register_schema_full_response("a", second)
        assert (whole.schema_id, whole.version, whole.schema.metadata) == (2, 2, first.metadata)
        by_id, by_guid = it.get_schema(2, "a", fmt="serialized"), it.get_schema_by_guid(whole.guid)
        assert by_id == by_guid == whole.schema
        assert it.get_schema_types() == ["JSON", "PROTOBUF", "AVRO"]
        assert (it.get_subjects_by_schema_id(1), it.get_subjects_by_schema_id(1, limit=0)) == (["a"], [])
        assert [(each.subject, each.version) for each in it.get_schema_versions(2)] == [("a", 2)]
        assert (it.lookup_schema("a", second).version, refused(it.lookup_schema, "a", avro(OPTIONAL))) == (2, 40403)
        assert it.get_latest_version("a").version == it.get_version("a").version == 2
        assert it.get_latest_with_metadata("a", {"owner": "me"}).version == 2
        assert refused(it.get_latest_with_metadata, "a", {"owner": "you"}) == 40403
        assert it.get_referenced_by("a", 1) == []
        assert it.test_compatibility("a", avro(OPTIONAL)) is it.test_compatibility_all_versions("a", avro(OPTIONAL))
        assert (it.set_compatibility("a", "full"), it.get_compatibility("a")) == ({"compatibility": "FULL"}, "FULL")
        assert it.set_config("a", ServerConfig(compatibility_group="major")) == {
            "compatibility": "FULL",
            "compatibilityGroup": "major",
        }
        for found in (it.get_config("a"), it.delete_config("a")):
            assert (found.compatibility_level, found.compatibility_group) == ("FULL", "major")
        assert refused(it.get_config, "a") == 40408
        assert (it.update_mode("a", "READONLY"), it.get_mode("a")) == ("READONLY", "READONLY")
        assert refused(it.delete_version, "a", 1) == refused(it.register_schema, "a", avro(OPTIONAL)) == 42205
        assert (it.delete_mode("a"), it.update_global_mode("IMPORT", force=True)) == ("READONLY", "IMPORT")
        assert (it.get_global_mode(), it.update_global_mode("READWRITE")) == ("IMPORT", "READWRITE")
        assert it.delete_version("a", 1) == 1
        assert (it.get_versions("a"), it.get_versions("a", deleted_only=True)) == ([2], [1])
        assert it.get_version("a", 1, deleted=True).schema == first
        assert (it.delete_subject("a"), it.get_subjects(), it.get_subjects(deleted_only=True)) == ([2], [], ["a"])
        assert it.get_contexts() == ["."]
        asked: Any = SimpleNamespace(to_dict=dict)
        for function, given in (
            (it.get_associations_by_resource_name, ["t", "-", "topic", []]),
            (it.create_association, [asked]),
            (it.delete_associations, ["t"]),
        ):
            assert refused(function, *given) == 404
        every = {name for name in dir(client) if not name.startswith("_") and callable(getattr(client, name))}
        assert it.called == every - OF_THE_PROCESS


async def test_every_method_of_confluents_client_is_answered(url: str) -> None:
    await asyncio.to_thread(use_every_method, url)


def use_contracts(url: str) -> None:
    with client_of(url) as client:
        plain, mine, yours = avro(), avro(metadata=metadata(owner="me")), avro(metadata=metadata(owner="you"))
        assert [client.register_schema("s", each) for each in (plain, mine, yours)] == [1, 2, 3]
        client.clear_caches()
        assert [client.register_schema("s", each) for each in (plain, mine)] == [1, 2], "each has its own"
        assert client.register_schema("t", mine) == 2
        kept = client.get_version("s", 2).schema.metadata
        assert kept == mine.metadata
        # what says nothing of them has those of the last version; what says that there are none has none
        ruled = client.register_schema("r", avro(metadata=metadata(owner="me"), rules=WRITTEN))
        newer = client.register_schema("r", avro(FIELD, OPTIONAL))
        assert (ruled, newer, client.lookup_schema("r", avro()).schema_id) == (4, 5, 4)
        inherited = client.get_schema(5)
        assert (inherited.metadata, inherited.rule_set) == (mine.metadata, RuleSet([], WRITTEN.domain_rules, []))
        bare = avro(FIELD, OPTIONAL, metadata=Metadata(None, None, None), rules=RuleSet(None, None))
        assert client.register_schema("r", bare) == 6
        assert client.get_schema(6).rule_set is None

        def post(**more: object) -> int:
            return int(client._rest_client.post("subjects/w/versions", {"schema": plain.schema_str, **more})["id"])

        given = rule("r", RuleMode.WRITE).to_dict()
        for wrong in (
            {"metadata": {"owner": "me"}},
            {"metadata": {"properties": {"owner": 7}}},
            {"ruleSet": {"domainRules": [given, given]}},
            {"ruleSet": {"migrationRules": [given]}},
            {"ruleSet": {"domainRules": [{**given, "mode": None}]}},
            {"metadata": {"properties": {"owner": "m" * (600 << 10)}}},
        ):
            assert refused(post, **wrong) == 42201


async def test_schemas_that_differ_in_metadata_or_rules_are_different(url: str) -> None:
    await asyncio.to_thread(use_contracts, url)


def use_configurations(url: str) -> None:
    with client_of(url) as client:
        client.set_config("s", ServerConfig(ConfigCompatibilityLevel.FULL, compatibility_group="major"))
        one, two = metadata(major="1"), metadata(major="2")
        other = {"name": "z", "type": "string"}
        assert client.register_schema("s", avro(metadata=one)) == 1
        assert not client.test_compatibility_all_versions("s", avro(FIELD, other))
        assert refused(client.register_schema, "s", avro(FIELD, other)) == 409
        assert client.register_schema("s", avro(FIELD, other, metadata=two)) == 2
        assert client.register_schema("s", avro(FIELD, OPTIONAL, metadata=one)) == 3
        put = client._rest_client.put
        assert put("config/s", {"compatibilityGroup": None}) == {"compatibility": "FULL"}
        assert refused(client.register_schema, "s", avro(OPTIONAL, other, metadata=metadata(major="3"))) == 409
        assert put("config", {"normalize": True}) == {"normalize": True}
        spelled = '{"fields":[{"type":{"type":"int"},"name":"x"}],"type":"record","name":"A"}'
        assert client.register_schema("n", Schema(spelled, "AVRO")) == client.register_schema("m", avro())
        assert client.get_config().compatibility_level == "BACKWARD"
        for wrong in ({}, {"compatibility": "SOME"}, {"normalize": 1}, {"defaultMetadata": {"properties": {"a": "b"}}}):
            assert refused(put, "config/s", wrong) == 42203


async def test_a_group_is_compared_by_itself_and_spelling_is_normalized_where_that_is_configured(url: str) -> None:
    await asyncio.to_thread(use_configurations, url)


def use_codecs(url: str) -> None:
    """Rules are executed by nobody here, so who would have to is told; who need not goes on."""
    registry = SchemaRegistry(url)
    with client_of(url) as client:
        text = str(avro().schema_str)
        write_id = client.register_schema("w", avro(rules=WRITTEN))
        read_id = client.register_schema("r", avro(rules=READ))
        value = b"\x00" + write_id.to_bytes(4, "big") + b"\x02"
        reads, writes = registry.avro(text, subject="r"), registry.avro(text, subject="w")
        assert (reads.decode(value), registry.plain().decode(value)) == ({"x": 1}, {"x": 1})
        written = reads.encode({"x": 1})
        assert int.from_bytes(written[1:5], "big") == read_id
        for codec in (writes, registry.plain(subject="w")):
            for _ in range(2):
                with pytest.raises(ValueError, match="the rules checked for who would write its values"):
                    codec.encode({"x": 1})
        for _ in range(2):
            with pytest.raises(ValueError, match="the rules read for who would read its values"):
                writes.decode(written)


async def test_our_codecs_ignore_no_rule(url: str) -> None:
    await asyncio.to_thread(use_codecs, url)
