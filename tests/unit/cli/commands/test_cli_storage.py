"""`replog storage`: one identity for a directory, written once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cli_kit import Replog

from replog.log import LogDirectory
from replog.metadata.cluster_ids import new_cluster_id
from replog_checkpoints import OsFileSystem, read_meta_properties

CLUSTER_ID = "abcdefghijklmnopqrstuv"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "server.toml"
    file.write_text(f'"node.id" = 7\n"log.dirs" = ["{tmp_path}/data"]\n')
    return file


def test_format_writes_the_identity_and_prints_the_cluster_id(replog: Replog, config: Path) -> None:
    done = replog("storage", "format", "--config", config, "--cluster-id", CLUSTER_ID)
    assert (done.status, done.out) == (0, f"{CLUSTER_ID}\n")
    meta = read_meta_properties(OsFileSystem(), str(config.parent / "data/meta.properties"))
    assert meta is not None
    assert (meta.cluster_id, meta.node_id, meta.extra) == (CLUSTER_ID, 7, {"replog.format": "1"})


def test_a_formatted_directory_opens_without_a_cluster_id(replog: Replog, config: Path) -> None:
    replog("storage", "format", "--config", config, "--cluster-id", CLUSTER_ID)
    directory = LogDirectory.open(OsFileSystem(), str(config.parent / "data"), cluster_id=None, node_id=7, now_ms=0)
    assert directory.meta.cluster_id == CLUSTER_ID
    directory.close(now_ms=0, broker_epoch=None)


def test_without_a_cluster_id_there_is_a_new_one(replog: Replog, config: Path) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}\n", replog("storage", "format", "--config", config).out)


def test_the_cluster_id_of_the_file_is_taken(replog: Replog, config: Path) -> None:
    config.write_text(config.read_text() + '"cluster.id" = "from-the-file"\n')
    assert "--cluster-id is other" in replog("storage", "format", "--config", config, "--cluster-id", "other").err
    assert replog("storage", "format", "--config", config).out == "from-the-file\n"


def test_a_formatted_directory_is_refused_and_not_changed(replog: Replog, config: Path) -> None:
    replog("storage", "format", "--config", config, "--cluster-id", CLUSTER_ID)
    before = (config.parent / "data/meta.properties").read_bytes()
    done = replog("storage", "format", "--config", config)
    assert done.status == 2
    assert f"is formatted already, for node 7 of cluster {CLUSTER_ID}" in done.err
    assert (config.parent / "data/meta.properties").read_bytes() == before


def test_from_any_directory_the_same_folders_are_formatted(
    replog: Replog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("node", "elsewhere"):
        (tmp_path / folder).mkdir()
    (tmp_path / "node/server.toml").write_text('"node.id" = 7\n"log.dirs" = ["data", "../disk2"]\n')
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert replog("storage", "format", "--config", "../node/server.toml").status == 0
    assert (tmp_path / "node/data/meta.properties").exists()
    assert (tmp_path / "disk2/meta.properties").exists()
    assert list(Path.cwd().iterdir()) == []
    monkeypatch.chdir(tmp_path / "node")
    assert f"{tmp_path}/node/data is formatted already" in replog("storage", "format", "--config", "server.toml").err


def test_a_damaged_identity_is_named_with_its_line(replog: Replog, config: Path) -> None:
    (config.parent / "data").mkdir()
    meta = config.parent / "data/meta.properties"
    meta.write_text("version=1\nnode.id=seven\ncluster.id=x\ndirectory.id=y\n")
    done = replog("storage", "format", "--config", config)
    assert done.status == 1
    assert done.err.startswith(f"error: {meta} line 2: ")
    assert "Nothing was changed" in done.err


def test_a_directory_in_use_is_refused(replog: Replog, config: Path) -> None:
    (config.parent / "data").mkdir()
    lock = OsFileSystem().lock(str(config.parent / "data/.lock"))
    done = replog("storage", "format", "--config", config)
    lock.release()
    assert done.status == 1
    assert "is in use by another process" in done.err


def test_replicas_without_an_identity_are_not_formatted_over(replog: Replog, config: Path) -> None:
    segment = config.parent / "data/flights-0/00000000000000000000.log"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"")
    done = replog("storage", "format", "--config", config)
    assert done.status == 1
    assert "holds replicas (flights-0) but no meta.properties" in done.err


def test_a_cluster_id_that_is_none(replog: Replog, config: Path) -> None:
    assert replog("storage", "format", "--config", config, "--cluster-id", "a b").status == 2


def test_random_uuids_differ_and_are_never_options(replog: Replog) -> None:
    assert len(replog("storage", "random-uuid").out) == 23
    ids = {new_cluster_id() for _ in range(200)}
    assert len(ids) == 200
    assert not any(text.startswith("-") for text in ids)
