"""The segmented log over a file system: what every replica, of data or of metadata, is stored in.

`Log` is one replica; `LogDirectory` holds many under one lock and keeps their checkpoints.  Files are Kafka's, byte for
byte (kafka-reference 1 and 3); where the behaviour differs on purpose, the module says so.
"""

from replog.log.config import LogConfig
from replog.log.epoch_cache import EpochEndOffset, LeaderEpochCache
from replog.log.flush import FlushJob
from replog.log.loader import RecoveryReport
from replog.log.log import Log
from replog.log.log_append import AppendInfo
from replog.log.log_directory import LogDirectory
from replog.log.producer_state import ProducerStateManager

__all__ = [
    "AppendInfo",
    "EpochEndOffset",
    "FlushJob",
    "LeaderEpochCache",
    "Log",
    "LogConfig",
    "LogDirectory",
    "ProducerStateManager",
    "RecoveryReport",
]
