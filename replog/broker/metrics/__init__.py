"""Prometheus metrics of a node: off unless `metrics.listener` is set.

| file             | what it does                                                                           |
|------------------|----------------------------------------------------------------------------------------|
| `service.py`     | what a node knows of metrics: opens, wires and closes the rest; the HTTP port          |
| `paths.py`       | the produce and fetch path with a clock around them: latencies, bytes                  |
| `readings.py`    | what can be read when somebody asks: states, lags, counts; a few replicas at a time    |
| `collector.py`   | readings as Prometheus families                                                        |

With metrics off none of this is imported and requests take the same way as without it: what measures stands around the
paths, not in them.  With metrics on, a scrape reads states on the event loop and makes its text in the server's thread.
The library is an extra (`replog[metrics]`).
"""
