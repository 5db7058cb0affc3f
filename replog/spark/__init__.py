"""The Spark data source `replog`: topics as DataFrames.

`spark.read.format("replog")` finds it through the top-level package `pyspark_replog`; `source` is where Spark comes in.
Planning happens in one Python process, reading in others, and none of them is the user's own: everything that passes
between them is plain data (`snapshot`), and everything that talks to brokers is made where it is used (`worker_client`).

`prepare`, before the first session, has Spark find Java and this Python.  `count` and `offsets` answer without reading;
`lag` reads the progress of a stream.
"""

from typing import TYPE_CHECKING

from replog.host.late_names import late_names

if TYPE_CHECKING:
    from replog.spark.counting import count, offsets
    from replog.spark.environment import prepare
    from replog.spark.stream.progress import lag

__all__ = ["count", "lag", "offsets", "prepare"]

# Spark's own processes import this package and never need them
__getattr__, __dir__ = late_names(
    __name__,
    {
        "count": "replog.spark.counting",
        "lag": "replog.spark.stream.progress",
        "offsets": "replog.spark.counting",
        "prepare": "replog.spark.environment",
    },
)
