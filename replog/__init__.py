"""An embeddable replicated log with Apache Kafka's storage and replication semantics.

The names below load what they need when they are first used, so that `import replog` stays small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from replog._version import __version__

if TYPE_CHECKING:
    from replog.client import Admin, Consumer, Producer
    from replog.cluster import LocalCluster

__all__ = ["Admin", "Consumer", "LocalCluster", "Producer", "__version__"]


def __getattr__(name: str) -> Any:
    if name in {"Admin", "Consumer", "Producer"}:
        import replog.client

        return getattr(replog.client, name)
    if name == "LocalCluster":
        from replog.cluster import LocalCluster

        return LocalCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
