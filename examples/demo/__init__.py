"""The main job, for eyes and for CI: real processes, a killed leader, and every record accounted for.

`run` is the order of events; each step has a module: `source` (the table), `producing`, `failover`, `reading`,
`spark_step` with `spark_job` in a process of its own, and `ledger` with `groups`, which say whether all is well.
"""
