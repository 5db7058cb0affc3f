"""What coordinators know of topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID


class TopicView(Protocol):
    """The topics of the cluster as this node knows them."""

    @property
    def version(self) -> int:
        """A number that is another one whenever something has changed."""
        ...

    @property
    def by_name(self) -> Mapping[str, object]:
        """All of them by name: a mapping that is never changed, another one when something has."""
        ...

    def find(self, name: str) -> tuple[UUID, int] | None:
        """Returns id and number of partitions of a topic; None where there is none."""
        ...
