"""A registry of our own: asked by Confluent's client, and by several at once through two servers, of which one is killed."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Metadata,
    MetadataProperties,
    RuleSet,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError

import replog
from replog.client import Admin
from replog.codecs.registry import SchemaRegistry
from replog.errors import ConfigError, InvalidRequestError, UnknownTopicOrPartitionError
from replog.registry import RegistryServer
from tests.cluster.cli_runs import command
from tests.lint import page_examples

DEADLINE_S = 60
FIELD = {"name": "x", "type": "int"}


def avro(name: str, *fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": fields or [FIELD]})


@pytest.fixture
async def servers() -> AsyncIterator[str]:
    async with replog.embedded() as broker:
        yield broker.bootstrap_servers


def refused(function: Any, *arguments: Any, **more: Any) -> int:
    with pytest.raises(SchemaRegistryError) as caught:
        function(*arguments, **more)
    return int(caught.value.error_code)


def use_confluents_client(url: str) -> None:
    """What its methods ask for, and what they make of the answers."""
    with SchemaRegistryClient({"url": url, "max.retries": 0}) as client:
        use_its_methods(client)


def use_its_methods(client: SchemaRegistryClient) -> None:
    first = Schema(avro("A"), "AVRO")
    assert [client.register_schema(subject, first) for subject in ("a", "a", "b")] == [1, 1, 1]
    assert client.get_schema(1).schema_str == avro("A").replace(" ", "")
    assert (client.lookup_schema("a", first).version, client.get_subjects()) == (1, ["a", "b"])
    y = {"name": "y", "type": "string"}
    without, default = (Schema(avro("A", FIELD, each), "AVRO") for each in (y, y | {"default": ""}))
    assert not client.test_compatibility("a", without)
    assert refused(client.register_schema, "a", without) == 409
    assert client.register_schema("a", default) == 2
    assert (client.get_versions("a"), client.get_latest_version("a").schema_id) == ([1, 2], 2)
    assert client.get_version("a", 1).schema.schema_type == "AVRO"
    client.set_compatibility("a", "NONE")
    assert (client.get_compatibility("a"), client.get_compatibility()) == ("NONE", "BACKWARD")
    assert client.register_schema("a", without) == 3
    using = Schema(avro("U", {"name": "a", "type": "A"}), "AVRO", [SchemaReference("A", "b", 1)])
    assert client.register_schema("u", using) == 4
    assert [each.subject for each in client.get_schema(4).references or ()] == ["b"]
    assert refused(client.delete_subject, "b") == 42206
    assert client.delete_version("a", 1) == 1
    assert (client.get_versions("a"), client.delete_subject("a")) == ([2, 3], [2, 3])
    assert refused(client.get_versions, "a") == 40401
    assert refused(client.delete_subject, "a") == 40404
    client.delete_subject("a", permanent=True)
    assert client.get_subjects(deleted=True) == ["b", "u"]


async def test_confluents_client_is_served(servers: str) -> None:
    async with RegistryServer(servers, listen="127.0.0.1:0") as server:
        await asyncio.to_thread(use_confluents_client, server.url)


def import_by_confluents_client(url: str) -> None:
    """Schemas keep the ids of the registry that they come from; afterwards new ones have later ids."""
    a, b, c = (Schema(avro(name), "AVRO") for name in "abc")
    with SchemaRegistryClient({"url": url, "max.retries": 0}) as client:
        assert client.update_global_mode("IMPORT") == "IMPORT"
        assert refused(client.register_schema, "s", a) == 42205  # without an id

        def register(subject: str, schema: Schema, **more: int) -> int:
            return int(client._rest_client.post(f"subjects/{subject}/versions", {**schema.to_dict(), **more})["id"])

        given = [("s", a, 70, 3), ("s", b, 71, 5), ("t", a, 70, 1), ("u", a, 72, 1), ("s", a, 70, 3)]
        assert [register(of, schema, id=id_, version=at) for of, schema, id_, at in given] == [70, 71, 70, 72, 70]
        assert register("s", c, id=73) == 73
        assert client.get_versions("s") == [3, 5, 6]
        assert refused(register, "v", b, id=70) == 42205
        assert refused(register, "s", c, id=73, version=3) == 42205
        assert refused(register, "s", c, id=(1 << 31), version=9) == 42205
        client.update_global_mode("READWRITE")
        assert refused(register, "w", b, id=99) == 42205
        assert client.register_schema("w", a) == 70
        assert client.register_schema("w", Schema(avro("a", FIELD, FIELD | {"name": "y", "default": 0}), "AVRO")) == 74
        assert refused(client.update_mode, "s", "IMPORT") == 42205
        assert client.update_mode("s", "IMPORT", force=True) == "IMPORT"
        assert client.delete_version("u", 1) == 1
        assert client.delete_version("u", 1, permanent=True) == 1
        assert client.register_schema("x", a) == 70


async def test_schemas_are_imported_with_their_ids(servers: str) -> None:
    async with RegistryServer(servers, listen="127.0.0.1:0") as server:
        await asyncio.to_thread(import_by_confluents_client, server.url)


def ask_for_what_is_not_there(url: str) -> None:
    with SchemaRegistryClient({"url": url, "max.retries": 0}) as client:
        full = ConfigCompatibilityLevel.FULL
        assert client.register_schema("a", Schema(avro("A"), "AVRO", [], None, RuleSet([], []))) == 1
        owned = Metadata(None, MetadataProperties({"owner": "me"}), None)
        assert refused(client.set_config, "a", ServerConfig(full, default_metadata=owned)) == 42203
        assert client.set_config("a", ServerConfig(full))["compatibility"] == "FULL"
        assert refused(client.register_schema, ":.other:", Schema(avro("A"), "AVRO")) == 42208
        assert client.register_schema(":.:b", Schema(avro("A"), "AVRO")) == 1
        assert client.get_contexts() == ["."]
        assert [client.get_subjects(offset=at, limit=1) for at in (0, 1, 2)] == [["a"], ["b"], []]


async def test_what_this_registry_does_not_keep_is_refused_not_dropped(servers: str) -> None:
    async with RegistryServer(servers, listen="127.0.0.1:0") as server:
        await asyncio.to_thread(ask_for_what_is_not_there, server.url)


def register_what_is_spelled_differently(url: str) -> None:
    first, again = (json.dumps({"type": "record", **rest}) for rest in ORDER_SPELLED)
    with SchemaRegistryClient({"url": url, "max.retries": 0}) as client:
        one, two = Schema(first, "AVRO"), Schema(again, "AVRO")
        assert (client.register_schema("plain", one), client.register_schema("plain", two)) == (1, 2)
        assert client.register_schema("s", two, normalize_schemas=True) == 3
        assert client.register_schema("t", one, normalize_schemas=True) == 3
        assert client.lookup_schema("s", one, normalize_schemas=True).schema_id == 3
        assert refused(client.lookup_schema, "t", two) == 40403
        assert client.get_versions("s") == [1]
        bad = Schema('{"type":"record"}', "AVRO")
        assert refused(client.register_schema, "s", bad, normalize_schemas=True) == 42201
        using = Schema('{"type":"array","items":"shop.A"}', "AVRO", [SchemaReference("shop.A", "s", 1)] * 2)
        assert client.register_schema("u", using, normalize_schemas=True) == 4
        assert len(client.get_schema(4).references) == 1


ORDER_SPELLED: tuple[dict[str, Any], ...] = (
    {"name": "A", "namespace": "shop", "fields": [FIELD]},
    {"fields": [{"type": {"type": "int"}, "name": "x"}], "name": "shop.A"},
)


async def test_normalized_schemas_have_one_id_however_they_are_spelled(servers: str) -> None:
    async with RegistryServer(servers, listen="127.0.0.1:0") as server:
        await asyncio.to_thread(register_what_is_spelled_differently, server.url)


def use_contexts(url: str) -> None:
    """One client names contexts, another has one in its url and knows nothing of them."""
    a, b = (Schema(avro(name), "AVRO") for name in "ab")
    inside = {"url": f"{url}/contexts/.c", "max.retries": 0}
    with SchemaRegistryClient({"url": url, "max.retries": 0}) as client, SchemaRegistryClient(inside) as other:
        assert [client.register_schema(subject, a) for subject in ("s", ":.c:s", ":.:t")] == [1, 1, 1]
        assert (client.register_schema(":.c:t", b), other.register_schema("t", b)) == (2, 2)
        assert other.get_schema(2).schema_str == client.get_schema(2, ":.c:").schema_str
        assert refused(client.get_schema, 2) == 40403
        using = Schema('{"type":"array","items":"a"}', "AVRO", [SchemaReference("a", "s", 1)])
        assert other.register_schema("u", using) == 3
        assert refused(other.delete_subject, "s") == 42206
        assert client.delete_subject("s") == [1]
        assert (client.get_contexts(), client.get_subjects()) == ([".", ".c"], [":.c:s", ":.c:t", ":.c:u", "t"])
        assert other.get_subjects() == [":.c:s", ":.c:t", ":.c:u"]
        prefixes = ("", "t", ":.c:t", ":*:t")
        assert [client.get_subjects(subject_prefix=each) for each in prefixes] == [
            ["t"],
            ["t"],
            [":.c:t"],
            [":.c:t", "t"],
        ]
        assert (client.get_version(":.c:t", 1).subject, other.get_version("t", 1).schema_id) == (":.c:t", 2)
        client.set_compatibility(":.c:", "NONE")
        string = Schema('"string"', "AVRO")
        assert (other.register_schema("t", string), refused(client.register_schema, "t", string)) == (4, 409)
        assert (client.update_mode(":.d:", "IMPORT"), refused(client.update_mode, ":.c:", "IMPORT")) == (
            "IMPORT",
            42205,
        )
        assert refused(client._rest_client.get, "contexts/c/subjects") == 42208


async def test_contexts_keep_their_subjects_and_ids_apart(servers: str) -> None:
    async with RegistryServer(servers, listen="127.0.0.1:0") as server:
        await asyncio.to_thread(use_contexts, server.url)
        stage = SchemaRegistry(f"{server.url}/contexts/.stage").avro('"string"', subject="fares-value")
        data = await asyncio.to_thread(stage.encode, "12.50")
        assert (data[:5], await asyncio.to_thread(stage.decode, data)) == (b"\0\0\0\0\1", "12.50")


class Caller:
    """Requests to servers by url, without a client's caches and retries."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def __call__(self, method: str, url: str, body: object = None, **more: Any) -> tuple[int, Any]:
        async with self._session.request(method, url, **(more or {"json": body})) as answer:
            return answer.status, json.loads(await answer.read())


@pytest.fixture
async def call() -> AsyncIterator[Caller]:
    async with aiohttp.ClientSession() as session:
        yield Caller(session)


async def test_what_is_wrong_has_confluents_codes(servers: str, call: Caller) -> None:
    async with RegistryServer(servers, listen="127.0.0.1:0") as server:
        asked = {
            ("GET", "/subjects/s/versions"): 40401,
            ("GET", "/subjects/s/versions/0"): 42202,
            ("GET", "/subjects/s/versions/x"): 42202,
            ("GET", "/schemas/ids/7"): 40403,
            ("GET", "/schemas/ids/99999999999999"): 40403,
            ("GET", "/config/s"): 40408,
            ("GET", "/nowhere"): 404,
            ("PUT", "/subjects"): 405,
            ("DELETE", "/subjects/s"): 40401,
            ("POST", "/subjects/s/versions"): 42201,
            ("PUT", "/config"): 42203,
            ("PUT", "/mode"): 42204,
        }
        for (method, path), code in asked.items():
            status, told = await call(method, server.url + path)
            assert (told["error_code"], status) == (code, code if code < 1_000 else code // 100), (method, path)
        assert (await call("PUT", server.url + "/mode", {"mode": "READONLY"}))[1] == {"mode": "READONLY"}
        status, told = await call("POST", server.url + "/subjects/s/versions", {"schema": avro("A")})
        assert (status, told["error_code"]) == (422, 42205)
        for size, code in ((600 << 10, 42201), (3 << 20, 413)):
            large = io.BytesIO(json.dumps({"schema": "x" * size}).encode())
            sent = {"data": large, "headers": {"Content-Type": "application/vnd.schemaregistry.v1+json"}}
            assert (await call("POST", server.url + "/subjects/s/versions", **sent))[1]["error_code"] == code


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_no_page_of_another_site_registers_by_a_form(servers: str, call: Caller, content_type: str) -> None:
    async with RegistryServer(servers, listen="127.0.0.1:0") as server:
        body = json.dumps({"schema": avro("A")}).encode()
        sent = {"data": body, "headers": {"Content-Type": content_type}}
        assert (await call("POST", server.url + "/subjects/s/versions", **sent))[0] == 415
        assert await call("GET", server.url + "/subjects") == (200, [])


async def test_nothing_is_answered_to_a_name_that_another_site_gives_this_machine(servers: str, call: Caller) -> None:
    async with RegistryServer(servers, listen="127.0.0.1:0") as server:
        for host, status in (
            ("evil.example:8081", 403),
            ("127.0.0.1.evil.example", 403),
            ("localhost:1", 200),
            ("[::1]", 200),
        ):
            assert (await call("GET", server.url + "/subjects", headers={"Host": host}))[0] == status, host


def test_other_machines_reach_it_only_where_that_is_allowed() -> None:
    with pytest.raises(ConfigError, match=r"other machines reach.*--allow-insecure"):
        RegistryServer("127.0.0.1:1", listen="0.0.0.0:0")
    RegistryServer("127.0.0.1:1", listen="0.0.0.0:0", allow_insecure=True)


async def started(servers: str) -> tuple[subprocess.Popen[str], str]:
    """A server as a process, and its url."""
    process = subprocess.Popen(
        command("registry", "serve", "-b", servers, "--listen", "127.0.0.1:0"), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = await asyncio.to_thread(process.stdout.readline)
    return process, line.split()[-1]


async def test_two_servers_give_one_id_once_and_keep_what_they_acknowledged_when_one_is_killed(
    servers: str, call: Caller
) -> None:
    """Both register the same 30 schemas, each under three subjects, all at once; one is killed among it."""
    processes = []
    try:
        for process, _ in (found := [await started(servers) for _ in range(2)]):
            processes.append(process)
        urls = [url for _, url in found]
        acknowledged: dict[tuple[str, str], tuple[int, int]] = {}

        async def register(url: str, subject: str, text: str) -> None:
            try:
                status, told = await call("POST", f"{url}/subjects/{subject}/versions", {"schema": text})
            except aiohttp.ClientError:
                return  # it was killed: nothing is promised
            assert status == 200, told
            given = (told["id"], told["version"])
            assert acknowledged.setdefault((subject, text), given) == given

        async with asyncio.timeout(DEADLINE_S):
            await call("PUT", urls[0] + "/config", {"compatibility": "NONE"})
            work = [
                asyncio.create_task(register(url, f"s{subject}", avro(f"A{number}")))
                for number in range(30)
                for subject in range(3)
                for url in urls
            ]
            while len(acknowledged) < 45:
                await asyncio.sleep(0.01)
            processes[0].send_signal(signal.SIGKILL)
            await asyncio.gather(*work)
        assert len(acknowledged) == 90
        ids = {
            text: {given for (_, other), (given, _) in acknowledged.items() if other == text}
            for _, text in acknowledged
        }
        assert sorted(each for some in ids.values() for each in some) == list(range(1, 31)), "one id each, none twice"
        again, url = await started(servers)
        processes.append(again)
        for (subject, text), (schema_id, version) in acknowledged.items():
            expected = {"subject": subject, "version": version, "id": schema_id, "schema": text.replace(" ", "")}
            assert (await call("GET", f"{url}/subjects/{subject}/versions/{version}"))[1].items() >= expected.items()
        for number in range(3):
            versions = await call("GET", f"{url}/subjects/s{number}/versions")
            assert versions == (200, list(range(1, 31))) == await call("GET", f"{urls[1]}/subjects/s{number}/versions")
        again.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(again.wait, DEADLINE_S) == 0
    finally:
        for process in processes:
            process.kill()
            process.communicate()


async def test_what_one_server_has_answered_another_finds(servers: str, call: Caller) -> None:
    async with (
        RegistryServer(servers, listen="127.0.0.1:0") as one,
        RegistryServer(servers, listen="127.0.0.1:0") as other,
    ):
        for number in range(10):
            _, told = await call(
                "POST",
                f"{one.url}/subjects/s%2Ft/versions",
                {"schema": avro("A", FIELD | {"name": f"x{number}", "default": 0})},
            )
            assert (await call("GET", f"{other.url}/schemas/ids/{told['id']}"))[0] == 200
            assert (await call("GET", f"{other.url}/subjects/s%2Ft/versions/latest"))[1]["version"] == number + 1


async def test_schemas_by_their_ids_are_told_while_no_broker_answers(call: Caller) -> None:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(replog.embedded())
        server = RegistryServer(broker.bootstrap_servers, listen="127.0.0.1:0", timeout_ms=1_000)
        async with server:
            path = f"{server.url}/subjects/s/versions"
            await call("POST", path, {"schema": avro("A")})
            await stack.aclose()
            assert [(await call("GET", each))[0] for each in (f"{server.url}/schemas/ids/1", f"{path}/1")] == [200, 200]
            for method, asked, body in (("GET", path, None), ("POST", path, {"schema": avro("B")})):
                status, told = await call(method, asked, body)
                assert (status, told["error_code"] in {50001, 50002}) == (500, True), told


async def test_a_topic_that_is_none_for_a_registry_is_refused_and_one_that_goes_ends_it(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.create_topic("two", 2, configs={"cleanup.policy": "compact"})
        await admin.create_topic("deleted", 1)
        for topic, said in (("two", "2 partitions"), ("deleted", "cleanup.policy=delete")):
            with pytest.raises(InvalidRequestError, match=said):
                async with RegistryServer(servers, listen="127.0.0.1:0", topic=topic):
                    pass
        async with RegistryServer(servers, listen="127.0.0.1:0") as server:
            with pytest.raises(ConfigError, match="cannot listen at"):
                async with RegistryServer(servers, listen=server.url.removeprefix("http://")):
                    pass
            await admin.delete_topic("_replog_schemas")
            async with asyncio.timeout(DEADLINE_S):
                with pytest.raises(UnknownTopicOrPartitionError):
                    await server.wait_ended()
    with pytest.raises(ConfigError, match="no host"):
        RegistryServer(servers, listen=":8081")


async def test_the_program_of_the_page_runs(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = page_examples.blocks("docs/REGISTRY.md")
    program = program.replace("127.0.0.1:9092", servers).replace("127.0.0.1:8081", "127.0.0.1:0")
    await asyncio.to_thread(exec, program, {})
    assert capsys.readouterr().out == "b'\\x00\\x00\\x00\\x00\\x01\\n12.50'\n"
