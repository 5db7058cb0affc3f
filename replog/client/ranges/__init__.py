"""Fixed ranges of offsets, read once from beginning to end: what Spark's source and `replog.scan` have in common.

A range is pinned when a read is planned (`offset_range`).  Its bytes come from the files of a replica on this machine where there
is one (`direct_reads`), else from brokers (`range_reader`); `range_client` joins the two.
"""
