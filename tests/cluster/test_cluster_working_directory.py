"""A cluster is found again, with its data, from whatever directory its commands and processes are started in."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cluster_kit import QUICK, run_node

from replog.client import Admin
from replog.cluster import LocalCluster
from replog.cluster.node_spec import ConfigValue
from replog.cluster.processes import last_lines
from replog.errors import BrokerNotAvailableError, ConfigError

pytestmark = pytest.mark.cluster


async def topics_of(local: LocalCluster) -> list[str]:
    async with Admin(local.bootstrap_servers) as admin:
        return [topic.name for topic in (await admin.describe_cluster()).topics]


async def stopped_cluster(directory: str) -> None:
    """A cluster of one node with a topic, stopped in order."""
    async with await LocalCluster.start(directory, nodes=1, config=QUICK) as local, Admin(local.bootstrap_servers) as a:
        await a.create_topic("kept", 1)


async def test_a_cluster_started_by_a_relative_path_is_restarted_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    await stopped_cluster("relative")
    monkeypatch.chdir(elsewhere)
    async with LocalCluster.load("../here/relative") as local:
        local.start_node(1)
        monkeypatch.chdir(tmp_path)  # also while it runs
        await local.wait_until_ready()
        assert await topics_of(local) == ["kept"]
    assert list(elsewhere.iterdir()) == []


async def test_a_cluster_directory_that_was_moved_is_restarted_where_it_is(tmp_path: Path) -> None:
    await stopped_cluster(str(tmp_path / "old"))
    (tmp_path / "old").rename(tmp_path / "new")
    async with LocalCluster.load(tmp_path / "new") as local:
        local.start_node(1)
        await local.wait_until_ready()
        assert await topics_of(local) == ["kept"]
    assert not (tmp_path / "old").exists()


async def test_a_node_whose_data_is_gone_starts_empty_only_when_told_so(tmp_path: Path) -> None:
    await stopped_cluster(str(tmp_path / "c"))
    data = tmp_path / "c" / "node-1" / "data"
    shutil.rmtree(data)
    async with LocalCluster.load(tmp_path / "c") as local:
        with pytest.raises(ConfigError, match=f"node 1 .*{data}.*accept_empty=True"):
            local.start_node(1)
        assert not data.exists()
        local.start_node(1, accept_empty=True)
        await local.wait_until_ready()
        assert await topics_of(local) == []


async def test_a_process_formats_no_directory_unasked(tmp_path: Path) -> None:
    """What holds `log.dirs` may be a disk that is not mounted."""
    await stopped_cluster(str(tmp_path / "c"))
    node = tmp_path / "c" / "node-1"
    (node / "data").rename(node / "unmounted")
    (node / "data").mkdir()
    status, output = await run_node(node / "server.toml")
    assert status == 2
    assert f"{node}/data" in output
    assert "--accept-empty" in output
    assert list((node / "data").iterdir()) == []


async def test_a_node_that_never_came_up_needs_no_permission(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config: dict[str, ConfigValue] = {**QUICK, "log.dirs": [str(tmp_path / "file" / "data")]}
    with pytest.raises(BrokerNotAvailableError):
        await LocalCluster.start(tmp_path / "c", nodes=1, config=config)
    local = LocalCluster.load(tmp_path / "c")
    local.start_node(1)
    with pytest.raises(BrokerNotAvailableError, match="Not a directory"):
        await local.wait_until_ready()
    assert "--accept-empty" not in last_lines(local.nodes[1].log_file, 10)
