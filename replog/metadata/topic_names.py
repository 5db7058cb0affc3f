"""What a topic may be called (docs/KAFKA.md; as Kafka's)."""

from __future__ import annotations

import re

NAME_LENGTH_MAX = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


RESERVED_NAME = "__cluster_metadata"
"""The name of the metadata log: a topic of this name would have its folder on every node."""

OFFSETS_TOPIC = "__consumer_offsets"
"""The topic of consumer groups and committed offsets: only their coordinators write it."""

TRANSACTIONS_TOPIC = "__transaction_state"
"""The topic of transactional producers: only their coordinators write it."""

INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""The topics that only the cluster itself writes."""


def topic_name_trouble(name: str) -> str | None:
    """Returns why no topic may have this name; None: one may."""
    if len(name) <= NAME_LENGTH_MAX and _NAME.match(name) and name not in {".", ".."}:
        return None
    return f'topic name "{name[:NAME_LENGTH_MAX]}" is not 1 to {NAME_LENGTH_MAX} of letters, digits, ".", "_", "-"'
