"""The Spark data source `replog`: topics as DataFrames.

`spark.read.format("replog")` finds it through the top-level package `pyspark_replog`; `source` is where Spark comes in.
Planning happens in one Python process, reading in others, and none of them is the user's own: everything that passes
between them is plain data (`snapshot`), and everything that talks to brokers is made where it is used (`worker_client`).
"""
