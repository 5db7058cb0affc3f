"""An embeddable replicated log with Apache Kafka's storage and replication semantics.

The names below load what they need when they are first used, so that `import replog` stays small.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from replog._version import __version__

if TYPE_CHECKING:
    from replog.client import Admin, Consumer, Producer
    from replog.cluster import LocalCluster
    from replog.cluster.embedded import EmbeddedCluster, embedded
    from replog.host.process_memory import tune_process
    from replog.local import AsyncLocalLog, LocalLog, ReadOnlyLog, open_log, open_log_async
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
    "Worker",
    "__version__",
    "embedded",
    "open_log",
    "open_log_async",
    "run",
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
    "Worker": "replog.worker",
    "embedded": "replog.cluster.embedded",
    "open_log": "replog.local",
    "open_log_async": "replog.local",
    "run": "replog.worker",
    "tune_process": "replog.host.process_memory",
}

_MODULES: Final = frozenset({"client", "cluster", "errors", "local", "records", "spark", "testing", "worker"})
"""The modules with more public names."""

# what a broker within this process tells its operator; what clients and logs warn of is seen also where logging is not set up
logging.getLogger("replog.broker").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is not None:
        return getattr(import_module(home), name)
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
