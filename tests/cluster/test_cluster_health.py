"""How a cluster of processes is seen from outside while a broker dies and comes back: status, one partition, metrics, log."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request

import pytest
from cluster_kit import Cluster, StartCluster, until
from test_cli_cluster import Done, replog

from replog.client import Producer

pytestmark = pytest.mark.cluster

TOPIC = "flights"
PARTITIONS = 3


async def run(cluster: Cluster, *arguments: object) -> Done:
    env = {"REPLOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    return await asyncio.to_thread(replog, *arguments, env=env)


async def status_is(cluster: Cluster, healthy: bool, sentence: str) -> dict[str, object]:
    async def said() -> dict[str, object] | None:
        done = await run(cluster, "status", "--json")
        found: dict[str, object] = json.loads(done.out or "{}")
        matches = found.get("sentence") == sentence and found["is_healthy"] is healthy
        return found if matches and done.status == (0 if healthy else 1) else None

    return await until(said, f"the status is: {sentence}")


async def metrics(cluster: Cluster, node_id: int) -> dict[str, float]:
    """The newest process' samples without histograms' buckets, by name and labels."""
    address = re.findall(r"metrics on (http://\S+)", cluster.log_text(node_id))[-1]
    with await asyncio.to_thread(urllib.request.urlopen, address, timeout=60) as response:
        lines = response.read().decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#") and "_bucket" not in line)
    return {name: float(value) for name, _, value in samples}


async def test_a_broker_dies_and_comes_back(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, metrics_listener="127.0.0.1:0", replica_lag_time_max_ms=2_000)
    await cluster.admin.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": 2})
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(60):
            await producer.send(TOPIC, value=b"%d" % number, partition=number % PARTITIONS)
    well = f"All {PARTITIONS} partitions are in sync on 3 brokers."
    await status_is(cluster, healthy=True, sentence=well)
    screen = await run(cluster, "status")
    assert (screen.status, screen.out.splitlines()[0].strip()) == (0, well)

    victim = await cluster.leader(TOPIC, 0)
    found = await metrics(cluster, victim)
    others = [node_id for node_id in cluster.node_ids if node_id != victim]
    assert found["replog_leaders"] >= 1
    assert found["replog_produced_bytes_total"] > 0
    assert found['replog_request_seconds_count{request="produce",stage="total"}'] >= 1
    assert {found[lag_of("records", 0, other)] for other in others} == {0}

    await cluster.local.kill(victim)
    await status_is(
        cluster,
        healthy=False,
        sentence=f"{PARTITIONS} partitions are under-replicated because broker {victim} is down.",
    )
    assert (await run(cluster, "topics", "describe", "--unavailable")).out == "every partition has a leader\n"

    described = await run(cluster, "partition", "describe", f"{TOPIC}-0", "--json")
    partition = json.loads(described.out)
    assert partition["leader"] in others
    assert (partition["min_insync_replicas"], sorted(partition["isr"])) == (2, others)
    states = {replica["broker_id"]: replica["state"] for replica in partition["replicas"]}
    assert states[victim] == "down"
    assert states[partition["leader"]] == "leader"
    assert f"{TOPIC}-0: leader {partition['leader']}" in (await run(cluster, "partition", "describe", f"{TOPIC}-0")).out

    leader = await metrics(cluster, partition["leader"])
    assert leader["replog_under_replicated_partitions"] == leader["replog_leaders"] >= 1
    assert (leader["replog_under_min_isr_partitions"], leader["replog_offline_partitions"]) == (0, 0)
    assert leader[lag_of("seconds", 0, victim)] == float("inf"), "it never fetched from this leader"
    log = cluster.log_text(partition["leader"])
    assert len(re.findall(rf"{TOPIC}-0: leads in epoch \d+ .*: broker {victim} is fenced", log)) == 1

    cluster.local.start_node(victim)
    await cluster.local.wait_until_ready(node_ids=[victim])
    await status_is(cluster, healthy=True, sentence=well)
    assert sum([(await metrics(cluster, node_id))["replog_isr_expands_total"] for node_id in others]) >= PARTITIONS


def lag_of(unit: str, partition: int, replica: int) -> str:
    return f'replog_replica_lag_{unit}{{partition="{partition}",replica="{replica}",topic="{TOPIC}"}}'
