"""What `replog chaos run` asks of its clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from replog.cluster.node_spec import ConfigValue
from replog.config.server_keys import InterBrokerTransport
from replog_chaos import run
from replog_chaos.fault import Scene, Target


class NotStartedError(Exception):
    """Instead of a cluster."""


@pytest.mark.parametrize("transport", InterBrokerTransport)
async def test_all_nodes_meet_over_what_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, transport: InterBrokerTransport
) -> None:
    asked: list[Mapping[str, ConfigValue]] = []

    @asynccontextmanager
    async def prepared(
        scene: Scene, directory: Path, nodes: int, config: Mapping[str, ConfigValue], topic: str
    ) -> AsyncIterator[Target]:
        asked.append(config)
        raise NotStartedError
        yield  # which makes it a generator

    monkeypatch.setattr(run, "prepared", prepared)
    with pytest.raises(NotStartedError):
        await run.run_chaos(
            ["kill-leader"], rounds=1, nodes=3, partitions=1, rate_per_s=1, say=print, transport=transport
        )
    assert [config["inter.broker.transport"] for config in asked] == [transport.value]
