"""What is wrong with a heartbeat by itself."""

from __future__ import annotations

import pytest

from replog.coordinator.consumers.checks import NAME_CHARS_MAX, TOPICS_MAX, check_heartbeat
from replog.coordinator.consumers.requests import ConsumerHeartbeat
from replog.errors import InvalidRequestError


def naming(epoch: int, *names: str) -> ConsumerHeartbeat:
    return ConsumerHeartbeat("g", "m", epoch, rebalance_timeout_ms=1_000, subscribed_topics=names, owned={})


@pytest.mark.parametrize("epoch", [0, 5])
@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([f"t{number}" for number in range(TOPICS_MAX + 1)], "it names 10001 topics, and may name 10000"),
        (["t", "t" * (NAME_CHARS_MAX + 1)], "a topic has 250 characters, and may have 249"),
    ],
)
def test_topics_of_a_member_are_bounded(epoch: int, names: list[str], says: str) -> None:
    """They are sorted, hashed and written: of whoever joins, and of a member that names others."""
    with pytest.raises(InvalidRequestError, match=says):
        check_heartbeat(naming(epoch, *names), ("uniform",))
    allowed = [name[:NAME_CHARS_MAX] for name in names[:TOPICS_MAX]]
    check_heartbeat(naming(epoch, *allowed), ("uniform",))
