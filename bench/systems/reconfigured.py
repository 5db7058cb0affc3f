"""Local clusters whose nodes are given keys that are known only when the cluster is there: its id, its ports."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable

from replog.cluster import LocalCluster
from replog.cluster.node_spec import ConfigValue, NodeSpec


async def restart_with(cluster: LocalCluster, keys_of: Callable[[NodeSpec], dict[str, ConfigValue]]) -> None:
    """Ends the nodes of a new cluster, gives each its keys over those that it has, and returns when all serve again."""
    await cluster.kill_all()  # an orderly stop of the last ones would wait for a quorum; nothing is stored yet
    for node_id, spec in cluster.nodes.items():
        keys = tomllib.loads(spec.config_file.read_text(encoding="utf-8")) | keys_of(spec)
        lines = (f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in keys.items())
        spec.config_file.write_text("".join(lines), encoding="utf-8")
        cluster.start_node(node_id)
    await cluster.wait_until_ready()
