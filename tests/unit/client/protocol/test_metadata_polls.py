"""Metadata that are asked for: what brokers that lag behind, and brokers without news, do to what a client knows."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest

from replog.client.cluster.image import ClusterImage
from replog.client.protocol import metadata as metadata_module
from replog.client.protocol.metadata import MetadataPolls
from replog.rpc.metadata_messages import WatchRequest
from replog.wire.messages.metadata import MetadataResponse

OLD, NEW = UUID(int=7), UUID(int=8)


def answer(*topics: tuple[str, UUID], controller_id: int = 1, cluster_id: str = "c") -> MetadataResponse:
    brokers = [MetadataResponse.MetadataResponseBroker(number, "127.0.0.1", 9000 + number) for number in (1, 2)]
    partition = MetadataResponse.MetadataResponsePartition(0, 0, 1, 3, [1, 2], [1, 2], [])
    told = [MetadataResponse.MetadataResponseTopic(0, name, id_, partitions=[partition]) for name, id_ in topics]
    return MetadataResponse(0, brokers, cluster_id, controller_id, told)


class Client:
    """What one client makes of the answers that brokers give."""

    def __init__(self) -> None:
        self.polls, self.image = MetadataPolls(), ClusterImage()

    async def hears(self, address: str, told: MetadataResponse) -> dict[str, UUID]:
        class Link:
            async def ask(self, *_: Any, **__: Any) -> MetadataResponse:
                return told

        async for update in self.polls.updates(cast("Any", Link()), address, WatchRequest(-1, follow=False)):
            if update.cluster_id == "c":
                self.image = self.image.after([update])
        return {name: topic.topic_id for name, topic in self.image.topics.items()}


async def test_a_broker_that_never_told_of_a_topic_does_not_take_it_away_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client()
    assert await client.hears("a:1", answer(("t", NEW), ("u", OLD))) == {"t": NEW, "u": OLD}
    for behind in (answer(("u", OLD)), answer(("t", OLD), ("u", OLD))):
        assert await client.hears("b:1", behind) == {"t": NEW, "u": OLD}, "b lags behind"
    assert await client.hears("c:1", answer(("v", OLD), cluster_id="other")) == {"t": NEW, "u": OLD}
    assert await client.hears("a:1", answer(("u", NEW))) == {"u": NEW}, "it knew them: they are deleted"
    assert await client.hears("b:1", answer()) == {"u": NEW}
    monkeypatch.setattr(metadata_module, "MISSED_S", 0)
    assert await client.hears("b:1", answer()) == {}, "nobody tells of it any more"


async def test_answers_without_news_are_none() -> None:
    client = Client()
    await client.hears("a:1", answer(("t", NEW), controller_id=1))
    known = client.image
    await client.hears("b:1", answer(("t", NEW), controller_id=2))
    assert client.image is known, "KRaft's brokers name any of them as the controller"
    await client.hears("b:1", answer(("t", NEW), ("u", OLD)))
    assert client.image.metadata_offset == known.metadata_offset + 1
