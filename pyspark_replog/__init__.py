"""How Spark finds the data source `replog` by itself.

On the first use of a format it does not know, Spark imports every top-level module named `pyspark_*` and registers the
`DefaultSource` in it.  One module that fails there hides all of them, so nothing is imported here that could: no gRPC,
no Arrow.  Where this package is not on the workers' path, `spark.dataSource.register(DefaultSource)` does the same.
"""

from replog.spark.source import ReplogDataSource as DefaultSource

__all__ = ["DefaultSource"]
