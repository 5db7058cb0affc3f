"""The Spark data source `replog`: topics as DataFrames.

`spark.read.format("replog")` finds it through the top-level package `pyspark_replog`; `source` is where Spark comes in.
Planning happens in one Python process, reading in others, and none of them is the user's own: everything that passes
between them is plain data (`snapshot`), and everything that talks to brokers is made where it is used (`worker_client`).

`prepare`, before the first session, has Spark find Java and this Python.  `count` and `offsets` answer without reading;
`lag` reads the progress of a stream.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replog.spark.counting import count, offsets
    from replog.spark.environment import prepare
    from replog.spark.stream.progress import lag

__all__ = ["count", "lag", "offsets", "prepare"]


def __getattr__(name: str) -> Any:
    """Imports a function when it is asked for: Spark's own processes import this package and never need it."""
    if name == "prepare":
        from replog.spark.environment import prepare

        return prepare
    if name == "lag":
        from replog.spark.stream.progress import lag

        return lag
    if name in __all__:
        from replog.spark import counting

        return getattr(counting, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
