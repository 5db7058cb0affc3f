"""`replog export` and `replog import`: what comes back is what was there, once, also after kills."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import replog
from replog.cli.app import run
from replog.cli.export import topic_import
from replog.client import SyncAdmin, SyncProducer

ALL = ("partition", "offset", "timestamp", "key", "value", "headers")
T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker with a topic `rides` of three partitions, one of them empty, with all that a record may have."""
    configs = {"max.message.bytes": 16 << 20, "retention.ms": -1}
    with replog.embedded() as broker:
        with SyncAdmin(broker.bootstrap_servers) as admin:
            for name in ("rides", "texts"):
                admin.create_topic(name, 3, configs=configs)
        with SyncProducer(broker.bootstrap_servers, max_request_bytes=16 << 20) as producer:
            for number in range(500):
                key = (None, b"", b"k", 'ü,"\n'.encode())[number % 4]
                value = (None, b"", b"\x00\xff%d" % number, b'{"a": "b"}')[number % 5 % 4]
                text = value if value is None or b"\xff" not in value else b"line\nline"
                headers = [("n", b"%d" % number), ("none", None)] if number % 3 == 0 else []
                producer.send("rides", value, key, number % 2, T0 + number, headers)
                producer.send("texts", text, key, number % 2, T0 + number, headers)
            producer.send("rides", bytes(9 << 20), None, 0, T0)
            producer.flush()
        yield broker.bootstrap_servers


def table(servers: str, topic: str) -> pa.Table:
    return replog.scan(topic, bootstrap_servers=servers, columns=ALL).read_all()


def made(servers: str, name: str, partitions: int = 3) -> str:
    with SyncAdmin(servers) as admin:
        admin.create_topic(name, partitions, configs={"max.message.bytes": 16 << 20, "retention.ms": -1})
    return name


@pytest.mark.parametrize(
    ("to", "encoding", "source"),
    [
        ("parquet", "utf-8", "rides"),
        ("arrow", "utf-8", "rides"),
        ("jsonl", "utf-8", "rides"),
        ("jsonl", "base64", "rides"),
        ("csv", "base64", "rides"),
        ("csv", "utf-8", "texts"),
    ],
)
def test_there_and_back(
    servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str, encoding: str, source: str
) -> None:
    file = tmp_path / f"out.{to}"
    copy = made(servers, f"copy-{to}-{encoding}-{source}")
    assert run(["export", source, "--to", to, "-o", str(file), "--encoding", encoding, "-b", servers]) == 0
    before = capsys.readouterr()
    assert (before.out, before.err.count("\n")) == ("", 1), "no progress where nobody looks"
    for words in (f"written to {copy}", f"0 records of {file} written to {copy}, "):
        assert run(["import", str(file), "--topic", copy, "--encoding", encoding, "-b", servers]) == 0
        assert words in capsys.readouterr().err
    assert table(servers, copy) == table(servers, source)


def test_csv_without_bytes_says_what_to_do(servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "rides", "--to", "csv", "-o", str(tmp_path / "out.csv"), "-b", servers]) == 1
    assert "is no text, and CSV has no bytes: export it with --encoding base64" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_one_partition(servers: str, tmp_path: Path) -> None:
    file = tmp_path / "part.parquet"
    arguments = ["--from", "10", "--until", "latest-200", "--partition", "1", "-b", servers]
    assert run(["export", "rides", "--to", "parquet", "-o", str(file), *arguments]) == 0
    assert pq.read_table(file)["offset"].to_pylist() == list(range(10, 50))
    copy = made(servers, "part", 1)
    assert run(["import", str(file), "--topic", copy, "--partition", "0", "-b", servers]) == 0
    assert (
        table(servers, copy)["value"]
        == table(servers, "rides").filter(pa.compute.field("partition") == 1)["value"][10:50]
    )


@pytest.mark.parametrize("batches", [1, 3, 8])
def test_an_import_that_was_killed_goes_on(
    servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], batches: int
) -> None:
    source, copy = made(servers, f"many-{batches}", 2), made(servers, f"killed-{batches}", 2)
    with SyncProducer(servers) as producer:
        for number in range(2):
            producer.send_many(source, [b"%d" % n for n in range(40_000)], partition=number)
    file = tmp_path / "many.parquet"
    assert run(["export", source, "--to", "parquet", "-o", str(file), "-b", servers]) == 0
    program = (
        "import os, sys\nfrom replog.cli.app import run\nfrom replog.client import SyncProducer\n"
        "send, calls = SyncProducer.send_columns, []\n"
        "def sent(self, *given, **more):\n"
        "    delivery = send(self, *given, **more)\n    calls.append(delivery)\n"
        f"    if len(calls) == {batches}:\n        calls[0 if {batches} == 8 else -1].result()\n        os._exit(9)\n"
        "    return delivery\n"
        "SyncProducer.send_columns = sent\nsys.exit(run(sys.argv[1:]))"
    )
    arguments = ["import", str(file), "--topic", copy, "-b", servers]
    assert subprocess.run([sys.executable, "-c", program, *arguments], check=False).returncode == 9
    capsys.readouterr()
    assert run(arguments) == 0
    assert "were there already" in capsys.readouterr().err
    assert table(servers, copy) == table(servers, source).set_column(2, "timestamp", table(servers, copy)["timestamp"])


def test_what_an_import_refuses(servers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"partition": pa.array([0, 0], pa.int32()), "offset": [4, 3], "value": [b"a", b"b"]})
    files = {
        "unsorted": rows,
        "elsewhere": rows.set_column(0, "partition", pa.array([0, 7], pa.int32())),
        "nowhere": rows.drop_columns(["partition"]),
        "text": rows.set_column(2, "value", pa.array(["a", "b"])),
        "other": rows.slice(0, 1),
    }
    for name, content in files.items():
        pq.write_table(content, tmp_path / f"{name}.parquet")
    (tmp_path / "torn.parquet").write_bytes((tmp_path / "other.parquet").read_bytes()[:-9])
    (tmp_path / "bad.jsonl").write_text('{"partition": 0, "value": "a"}\n{"partition": 0}\n')
    empty = made(servers, "refusing", 1)
    for name, topic, text in (
        ("unsorted.parquet", empty, "the records of partition 0 are not in order of offsets"),
        ("elsewhere.parquet", empty, "has records of partition 7, and refusing has 1 partitions: create a topic"),
        ("nowhere.parquet", empty, "has no column partition: say with --partition which it is"),
        ("text.parquet", empty, "its column value is string, not binary"),
        ("torn.parquet", empty, "is no whole parquet file of records"),
        ("bad.jsonl", empty, "line 2: KeyError('value')"),
        ("other.parquet", "rides", "rides-0 has 251 records, and"),
        ("other.parquet", "nothing", 'topic "nothing" does not exist'),
    ):
        assert run(["import", str(tmp_path / name), "--topic", topic, "-b", servers]) == 1, name
        assert text in capsys.readouterr().err
    assert table(servers, empty).num_rows == 0
    with SyncProducer(servers) as producer:
        producer.send(empty, b"foreign").result()
    assert run(["import", str(tmp_path / "other.parquet"), "--topic", empty, "-b", servers]) == 1
    assert "refusing-0 has another value at offset 0" in capsys.readouterr().err


def test_a_topic_that_others_write_to_is_told(
    servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = made(servers, "shared", 1)
    pq.write_table(pa.table({"partition": pa.array([0], pa.int32()), "value": [b"a"]}), tmp_path / "one.parquet")
    ends = topic_import._ends

    def end_later(request: topic_import.TopicImport, count: int) -> dict[int, int]:
        found = ends(request, count)
        with SyncProducer(servers) as producer:
            producer.send(copy, b"somebody").result()
        return found

    monkeypatch.setattr(topic_import, "_ends", end_later)
    assert run(["import", str(tmp_path / "one.parquet"), "--topic", copy, "-b", servers]) == 1
    assert "something else writes to the topic" in capsys.readouterr().err
