"""Ids of new clusters."""

from __future__ import annotations

import uuid

from replog_checkpoints import uuid_to_text


def new_cluster_id() -> str:
    """Makes a random id in Kafka's spelling that no command line takes for an option."""
    while (text := uuid_to_text(uuid.uuid4())).startswith("-"):
        pass
    return text
