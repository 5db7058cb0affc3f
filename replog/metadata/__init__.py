"""What the cluster knows about itself: the records of the metadata log, and the image every node builds from them."""

from replog.metadata.delta import LocalChanges, LocalPartition, MetadataDelta, TopicDelta
from replog.metadata.image import AwaitedReport, MetadataImage, TopicImage, awaiting_report, image_records
from replog.metadata.loader import MetadataLoader
from replog.metadata.registrations import BrokerRegistration, PartitionRegistration

__all__ = [
    "AwaitedReport",
    "BrokerRegistration",
    "LocalChanges",
    "LocalPartition",
    "MetadataDelta",
    "MetadataImage",
    "MetadataLoader",
    "PartitionRegistration",
    "TopicDelta",
    "TopicImage",
    "awaiting_report",
    "image_records",
]
