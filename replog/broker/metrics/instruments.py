"""What is measured when it happens.  Everything else is read from the state when a scrape asks (`readings`)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, Info, ProcessCollector

from replog._version import __version__

PRODUCE = "produce"
FETCH_CONSUMER = "fetch_consumer"
FETCH_FOLLOWER = "fetch_follower"

QUEUE = "queue"
LOCAL = "local"
REMOTE = "remote"
TOTAL = "total"

LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Instruments:
    """Histograms and counters of one node, in a registry of its own: two nodes of one process share nothing.

    Attributes:
        registry: The registry of everything that is exported.
        request_seconds: The time that requests take, by request and stage.
        fsync_seconds: The time that the flush of one log takes.
        produced_bytes: The bytes of record batches that were appended.
        fetched_bytes: The bytes of record batches that were sent, by reader.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info("replog_build", "The version that runs.", registry=self.registry).info({"version": __version__})
        self.request_seconds = Histogram(
            "replog_request_seconds",
            "Time of requests on this broker, by stage.",
            ("request", "stage"),
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.fsync_seconds = Histogram(
            "replog_fsync_seconds",
            "Time to bring one log to stable storage.",
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.produced_bytes = Counter(
            "replog_produced_bytes", "Bytes of record batches that producers had appended.", registry=self.registry
        )
        self.fetched_bytes = Counter(
            "replog_fetched_bytes", "Bytes of record batches that were sent.", ("reader",), registry=self.registry
        )


class RequestTimes:
    """The stages of one kind of request; looked up once, since requests are many."""

    def __init__(self, instruments: Instruments, request: str) -> None:
        def stage(name: str) -> Histogram:
            return instruments.request_seconds.labels(request, name)

        self.queue = stage(QUEUE)
        self.local = stage(LOCAL)
        self.remote = stage(REMOTE)
        self.total = stage(TOTAL)
