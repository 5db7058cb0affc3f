"""The topics of the cluster as coordinators see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from replog.metadata.image import MetadataImage, TopicImage


class ImageTopics:
    """See `replog.coordinator.consumers.config.TopicView`.

    Args:
        image: The function that returns the metadata as this node knows them.
    """

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._seen: Mapping[str, TopicImage] | None = None
        self._version = 0

    @property
    def version(self) -> int:
        topics = self._image().topics_by_name
        if topics is not self._seen:
            self._seen = topics
            self._version += 1
        return self._version

    @property
    def by_name(self) -> Mapping[str, object]:
        return self._image().topics_by_name

    def find(self, name: str) -> tuple[UUID, int] | None:
        topic = self._image().topics_by_name.get(name)
        return None if topic is None else (topic.topic_id, len(topic.partitions))
