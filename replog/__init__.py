"""An embeddable replicated log with Apache Kafka's storage and replication semantics.

The names below load what they need when they are first used, so that `import replog` stays small.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from replog._version import __version__

if TYPE_CHECKING:
    from replog.client import Admin, Consumer, Producer
    from replog.cluster import LocalCluster
    from replog.cluster.embedded import EmbeddedCluster, embedded
    from replog.local import AsyncLocalLog, LocalLog, ReadOnlyLog, open_log, open_log_async
    from replog.process_memory import tune_process

__all__ = [
    "Admin",
    "AsyncLocalLog",
    "Consumer",
    "EmbeddedCluster",
    "LocalCluster",
    "LocalLog",
    "Producer",
    "ReadOnlyLog",
    "__version__",
    "embedded",
    "open_log",
    "open_log_async",
    "tune_process",
]

# what a broker within this process tells its operator; what clients and logs warn of is seen also where logging is not set up
logging.getLogger("replog.broker").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    if name in {"Admin", "Consumer", "Producer"}:
        import replog.client

        return getattr(replog.client, name)
    if name == "LocalCluster":
        from replog.cluster import LocalCluster

        return LocalCluster
    if name in {"EmbeddedCluster", "embedded"}:
        import replog.cluster.embedded

        return getattr(replog.cluster.embedded, name)
    if name in {"AsyncLocalLog", "LocalLog", "ReadOnlyLog", "open_log", "open_log_async"}:
        import replog.local

        return getattr(replog.local, name)
    if name == "tune_process":
        from replog.process_memory import tune_process

        return tune_process
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
