"""An embeddable replicated log with Apache Kafka's storage and replication semantics.

The names below load what they need when they are first used, so that `import replog` stays small.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from replog._version import __version__
from replog.host.late_names import late_names

if TYPE_CHECKING:
    from replog.client import Admin, Consumer, Producer, Security
    from replog.cluster import LocalCluster
    from replog.cluster.embedded import EmbeddedCluster, embedded
    from replog.host.process_memory import tune_process
    from replog.local import AsyncLocalLog, LocalLog, ReadOnlyLog, open_log, open_log_async
    from replog.tables import SyncTable, Table, scan
    from replog.worker import Worker, run

__all__ = [
    "Admin",
    "AsyncLocalLog",
    "Consumer",
    "EmbeddedCluster",
    "LocalCluster",
    "LocalLog",
    "Producer",
    "ReadOnlyLog",
    "Security",
    "SyncTable",
    "Table",
    "Worker",
    "__version__",
    "embedded",
    "open_log",
    "open_log_async",
    "run",
    "scan",
    "tune_process",
]

_HOMES: Final[Mapping[str, str]] = {
    "Admin": "replog.client",
    "AsyncLocalLog": "replog.local",
    "Consumer": "replog.client",
    "EmbeddedCluster": "replog.cluster.embedded",
    "LocalCluster": "replog.cluster",
    "LocalLog": "replog.local",
    "Producer": "replog.client",
    "ReadOnlyLog": "replog.local",
    "Security": "replog.client",
    "SyncTable": "replog.tables.sync_table",
    "Table": "replog.tables.table",
    "Worker": "replog.worker",
    "embedded": "replog.cluster.embedded",
    "open_log": "replog.local",
    "open_log_async": "replog.local",
    "run": "replog.worker",
    "scan": "replog.tables.scanning",
    "tune_process": "replog.host.process_memory",
}

_MODULES: Final = (
    "client",
    "cluster",
    "codecs",
    "errors",
    "local",
    "records",
    "registry",
    "spark",
    "testing",
    "worker",
)
"""The modules with more public names."""

# what a broker within this process tells its operator; what clients and logs warn of is seen also where logging is not set up
logging.getLogger("replog.broker").addHandler(logging.NullHandler())

__getattr__, __dir__ = late_names(__name__, {**_HOMES, **dict.fromkeys(_MODULES, "")}, __all__)
