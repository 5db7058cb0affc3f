"""A load of metadata changes on a quorum: each has a value of its own, so that its record can be counted in the log."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from cluster_kit import say

from replog.cli.metadata.log import MetadataLogFiles
from replog.client.protocol.connection import KafkaTransport
from replog.client.protocol.seam import Connection
from replog.cluster import LocalCluster
from replog.controller.requests import (
    AlterableConfig,
    AlterConfigs,
    AlterConfigsResource,
    AlterConfigsResponse,
    ConfigOperation,
)
from replog.errors import ErrorCode, ReplogError, RetriableError
from replog.metadata.records import ConfigRecord, ResourceType
from replog.rpc.metadata_records import decode_metadata_record
from replog.rpc.node_messages import DescribeQuorumRequest, DescribeQuorumResponse

KEY = "log.retention.ms"
FIRST_VALUE = 10**9
ATTEMPT_TIMEOUT_MS = 5_000
FIND_TIMEOUT_MS = 1_000
FIND_PAUSE_S = 0.02


@dataclass
class Changes:
    """Sets one configuration of the cluster to one value after the other; every request is sent once only.

    Attributes:
        acknowledged: values whose change was answered as committed.
        refused: values that were refused before anything was appended.
        unknown: values whose fate was not told: leadership was lost, or the answer.
    """

    local: LocalCluster
    acknowledged: set[int] = field(default_factory=set[int])
    refused: set[int] = field(default_factory=set[int])
    unknown: set[int] = field(default_factory=set[int])
    errors: Counter[str] = field(default_factory=Counter[str])
    _transport: KafkaTransport = field(default_factory=KafkaTransport)
    _connections: dict[str, Connection] = field(default_factory=dict[str, Connection])
    _leader: str | None = None
    _number: int = 0

    async def run(self, rate_per_s: float, until: asyncio.Event) -> None:
        """Offers changes at a fixed rate, whether earlier ones are answered or not."""
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        count = 0
        async with asyncio.TaskGroup() as tasks:
            while not until.is_set():
                await asyncio.sleep(max(0.0, start_s + count / rate_per_s - loop.time()))
                count += 1
                tasks.create_task(self.change())
        say(
            f"{count} changes offered in {loop.time() - start_s:.1f} s: {len(self.acknowledged)} acknowledged, "
            f"{len(self.refused)} refused, {len(self.unknown)} unknown; {dict(self.errors)}"
        )

    async def change(self) -> None:
        """One change, sent once."""
        self._number += 1
        value = FIRST_VALUE + self._number
        try:
            leader = await self._find_leader()
            answer = await leader.call(_request(value), timeout_ms=ATTEMPT_TIMEOUT_MS)
        except RetriableError as error:
            self._leader = None
            self.errors[type(error).__name__] += 1
            self.unknown.add(value)
        else:
            assert isinstance(answer, AlterConfigsResponse)
            (result,) = answer.resources
            (self.acknowledged if result.error is ErrorCode.NONE else self.refused).add(value)

    async def close(self) -> None:
        for connection in self._connections.values():
            await connection.close()

    async def _find_leader(self) -> Connection:
        """The node that leads, as any of them says; remembered until a request to it fails."""
        while self._leader is None:
            for spec in list(self.local.nodes.values()):
                try:
                    answer = await self._to(spec.address).call(DescribeQuorumRequest(), timeout_ms=FIND_TIMEOUT_MS)
                except ReplogError:
                    continue
                assert isinstance(answer, DescribeQuorumResponse)
                self._leader = self.local.nodes[answer.leader_id].address
                break
            else:
                await asyncio.sleep(FIND_PAUSE_S)
        return self._to(self._leader)

    def _to(self, address: str) -> Connection:
        if address not in self._connections:
            self._connections[address] = self._transport.connect(address, purpose="changes")
        return self._connections[address]


def values_in_log(data_directory: Path) -> list[int]:
    """The values that a node's metadata log says were set, in order; the node must have stopped."""
    files = MetadataLogFiles(data_directory)
    found: list[int] = []
    for batch in files.batches(files.log_start_offset):
        if not batch.is_control:
            for record in batch.records:
                decoded = decode_metadata_record(record.value, offset=record.offset)
                if isinstance(decoded, ConfigRecord) and decoded.name == KEY and decoded.value is not None:
                    found.append(int(decoded.value))
    return found


def check_log(changes: Changes, values: list[int]) -> None:
    """Every acknowledged change is there, none twice, and nothing that nobody asked for."""
    counts = Counter(values)
    assert [value for value in sorted(changes.acknowledged) if counts[value] == 0] == [], "acknowledged and lost"
    assert [value for value, count in counts.items() if count > 1] == [], "in the log twice"
    assert set(counts) <= changes.acknowledged | changes.unknown
    assert not set(counts) & changes.refused


def _request(value: int) -> AlterConfigs:
    config = AlterableConfig(KEY, ConfigOperation.SET, str(value))
    return AlterConfigs((AlterConfigsResource(ResourceType.BROKER, "", (config,)),))
