"""Engines that take what `replog.scan` hands over, themselves; skipped where they are not installed (docs/TABLES.md)."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
from test_cli_cluster import until

import replog
from replog.client import SyncAdmin, SyncProducer

COUNT = 5_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with replog.embedded() as broker:
        with SyncAdmin(broker.bootstrap_servers) as admin, SyncProducer(broker.bootstrap_servers) as producer:
            admin.create_topic("rides", 2)
            for number in range(COUNT):
                producer.send("rides", b"%d" % number, b"k%d" % (number % 3), number % 2, 1_700_000_000_000 + number)
            producer.flush()
        yield broker.bootstrap_servers


def test_duckdb_groups_a_topic_and_stops_early(servers: str) -> None:
    duckdb = pytest.importorskip("duckdb", reason="pip install duckdb (MIT)")
    rides = replog.scan("rides", bootstrap_servers=servers)
    with duckdb.connect() as connection:
        connection.register("rides", rides)
        query = (
            "select key::varchar, count(*), sum(value::varchar::int), min(partition) from rides where epoch_ms(timestamp) >= "
            "1700000001000 group by 1 order by 1"
        )
        found = connection.sql(query).fetchall()
        chosen = range(1_000, COUNT)
        assert found == [
            (f"k{key}", len(mine), sum(mine), 0) for key in range(3) for mine in [[n for n in chosen if n % 3 == key]]
        ]
        few = replog.scan("rides", bootstrap_servers=servers)
        connection.register("few", few)
        assert len(connection.sql("select * from few limit 3").fetchall()) == 3
    del few
    gc.collect()
    until(lambda: not any("read-ahead" in thread.name for thread in threading.enumerate()))


def test_polars_takes_a_topic(servers: str) -> None:
    polars = pytest.importorskip("polars", reason="pip install polars (MIT)")
    frame = polars.from_arrow(
        replog.scan("rides", bootstrap_servers=servers, columns=["partition", "offset", "value"]).read_all()
    )
    assert frame.shape == (COUNT, 3)
    assert frame.group_by("partition").len().sort("partition").rows() == [(0, COUNT // 2), (1, COUNT // 2)]
    assert frame["value"].cast(polars.String).cast(polars.Int64).sum() == sum(range(COUNT))
