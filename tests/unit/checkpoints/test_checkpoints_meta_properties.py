"""meta.properties: any text round-trips through Java's escapes, and a directory that is not ours is not taken for ours."""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import (
    DamagedCheckpointError,
    MetaProperties,
    OpenMode,
    read_meta_properties,
    replace_file,
    seal_meta_properties,
    write_meta_properties,
)

U = UUID("01020304-0506-0708-1112-131415161718")
ID = b"directory.id=AQIDBAUGBwgREhMUFRYXGA\n"
KNOWN_LINES = b"#\nnode.id=1\n" + ID + b"version=1\ncluster.id=abc\n"
KNOWN = {"node.id", "directory.id", "version", "cluster.id"}
# everything but half characters and the control characters that mean damage
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@given(
    cluster_id=texts.filter(bool),
    node_id=st.integers(0, 2**31 - 1),
    directory_id=st.uuids().filter(lambda value: value.int > 99),
    extra=st.dictionaries(texts.filter(lambda key: key not in KNOWN), texts, max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_round_trip(cluster_id: str, node_id: int, directory_id: UUID, extra: dict[str, str]) -> None:
    disk = SimulatedFileSystem()
    properties = MetaProperties(cluster_id, node_id, directory_id, extra)
    write_meta_properties(disk, "meta.properties", properties)
    assert read_meta_properties(disk, "meta.properties") == properties


def test_extra_keys_follow_the_known_ones(disk: SimulatedFileSystem) -> None:
    write_meta_properties(disk, "/logs/meta.properties", MetaProperties("abc", 1, U, {"replog.format": "1"}))
    file = disk.open("/logs/meta.properties", OpenMode.READ)
    assert file.pread(1000, 0) == KNOWN_LINES + b"replog.format=1\nreplog.checksum=0a7ff41b\n"


def test_a_flipped_character_makes_no_other_identity(disk: SimulatedFileSystem) -> None:
    path, said = "/logs/meta.properties", MetaProperties("abc", 1, U, {"replog.format": "1"})
    write_meta_properties(disk, path, said)
    for at in range(8 * len(KNOWN_LINES)):
        disk.flip_bit(path, at // 8, at % 8)
        with contextlib.suppress(DamagedCheckpointError):
            found = read_meta_properties(disk, path)
            assert found is not None
            assert (found.node_id, found.directory_id, found.cluster_id) == (1, U, "abc"), at
        disk.flip_bit(path, at // 8, at % 8)


def test_a_file_of_an_older_version_is_sealed(disk: SimulatedFileSystem) -> None:
    path, said = "/logs/meta.properties", MetaProperties("abc", 1, U)
    replace_file(disk, path, KNOWN_LINES)
    assert read_meta_properties(disk, path) == said
    seal_meta_properties(disk, path, said)
    assert disk.image()[path] == KNOWN_LINES + b"replog.checksum=0a7ff41b\n"
    assert read_meta_properties(disk, path) == said


def test_everything_that_java_reads(disk: SimulatedFileSystem) -> None:
    data = (
        b"! comment\r\n   \nversion : 1\r\nnode.id 7\n" + ID + b"cluster.id = a\\u0062c \\\n    d\n"
        b"path\\ name=C\\:\\\\x\\tz\nempty\nf\xfcr=\xe4\nsmile=\\ud83d\\ude00\n"
    )
    replace_file(disk, "/logs/file", data)
    extra = {"path name": "C:\\x\tz", "empty": "", "für": "ä", "smile": "😀"}
    assert read_meta_properties(disk, "/logs/file") == MetaProperties("abc d", 7, U, extra)


@pytest.mark.parametrize(
    ("data", "line", "reason"),
    [
        (b"#\nversion=1\n", 0, "node.id, directory.id, cluster.id missing"),
        (b"#\nversion=0\nnode.id=1\ncluster.id=abc\n" + ID, 2, "version 0 is not supported"),
        (b"version=1\nnode.id=-1\ncluster.id=abc\n" + ID, 2, "node.id '-1'"),
        (b"version=1\nnode.id=one\ncluster.id=abc\n" + ID, 2, "node.id 'one'"),
        (b"version=1\nnode.id=1\ncluster.id=\n" + ID, 3, "cluster.id is empty"),
        (b"version=1\nnode.id=1\ncluster.id=abc\ndirectory.id=AQ\n", 4, "'AQ'"),
        (b"version=1\nnode.id=1\ncluster.id=abc\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAg\n", 4, "reserved"),
        (b"version=1\nversion=1\n", 2, "version appears twice"),
        (b"version=1\nnode.id=1", 2, "no newline"),
        (b"version=1\n\0\0\0\n", 2, "control characters"),
        (b"version=1\nx=\\u12\n", 2, "four hexadecimal digits"),
        (b"version=1\nx=\\ud83d\n", 2, "half a character"),
    ],
)
def test_damaged(refused: Any, data: bytes, line: int, reason: str) -> None:
    error = refused(read_meta_properties, data)
    assert error.line == line
    assert reason in error.reason


@pytest.mark.parametrize(
    "fields",
    [
        {"cluster_id": ""},
        {"node_id": -1},
        {"directory_id": UUID(int=99)},
        {"extra": {"node.id": "1"}},
    ],
)
def test_out_of_range(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        MetaProperties(**{"cluster_id": "abc", "node_id": 1, "directory_id": U, **fields})
