"""Spark reads, streams and writes topics behind TLS and a login; the password is in no plan, no page and no error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from replog.client import SyncAdmin
from tests.kafka.secure_doors import PASSWORD, USER, SecureDoors
from tests.kafka.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ROWS = 1_000


RIDES, COPIED, HELD = "secret-rides", "secret-copied", "secret-held"


@pytest.fixture(scope="module", autouse=True)
def _topics(doors: SecureDoors) -> None:
    with SyncAdmin(doors.at("PLAINTEXT")) as admin:
        for topic in (RIDES, COPIED):
            admin.create_topic(topic, 2, 1)


def options(doors: SecureDoors, password: str = PASSWORD, **others: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": doors.at("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(doors.certs / "ca.pem"),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": USER,
        "kafka.sasl.password": password,
        **others,
    }


def test_rows_pass_and_no_plan_shows_the_password(spark: Any, doors: SecureDoors, tmp_path: Path) -> None:
    """Goal: driver and executors log in; what Spark shows of a query has no password."""
    rows = spark.range(ROWS).selectExpr("concat('k', id) AS key", "concat('ride ', id) AS value")
    rows.write.format("replog").mode("append").options(**options(doors, topic=RIDES)).save()
    read = spark.read.format("replog").options(**options(doors, subscribe=RIDES)).load()
    assert read.count() == ROWS
    assert read.selectExpr("CAST(key AS STRING) k").distinct().count() == ROWS
    plans = [read._jdf.queryExecution().toString(), str(read), read._jdf.queryExecution().logical().toString()]
    stream = (
        spark.readStream.format("replog").options(**options(doors, subscribe=RIDES, startingOffsets="earliest")).load()
    )
    query = (
        stream.selectExpr("key", "value")
        .writeStream.format("replog")
        .options(**options(doors, topic=COPIED, checkpointLocation=str(tmp_path / "c")))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    plans += [
        str(query.lastProgress),
        str(query._jsq.explainInternal(*[True])),
        stream._jdf.queryExecution().toString(),
    ]
    plans += [path.read_text(errors="replace") for path in (tmp_path / "c").rglob("*") if path.is_file()]
    copied = spark.read.format("replog").options(**options(doors, subscribe=COPIED)).load()
    assert copied.count() == ROWS
    assert not [text for text in plans if PASSWORD in text or "canary" in text]


@contextmanager
def event_log(spark: Any, folder: Path) -> Iterator[Path]:
    """Has Spark write its event log, as with `spark.eventLog.enabled`, for as long as the block; the file is whole behind it."""
    folder.mkdir()
    context, jvm = spark.sparkContext, spark.sparkContext._jvm
    configuration = context._jsc.sc().conf().clone().set("spark.eventLog.compress", "false")
    uri = jvm.java.net.URI(folder.as_uri())
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "canaries", jvm.scala.Option.empty(), uri, configuration
    )
    listener.start()
    context._jsc.sc().addSparkListener(listener)
    try:
        yield folder
    finally:
        context._jsc.sc().listenerBus().waitUntilEmpty()
        context._jsc.sc().removeSparkListener(listener)
        listener.stop()


def test_no_event_log_shows_a_password(spark: Any, doors: SecureDoors, tmp_path: Path) -> None:
    """Goal: event logs are kept for months, and read by whoever may see the history server."""
    with event_log(spark, tmp_path / "events") as folder:
        rows = spark.range(3).selectExpr("'k' AS key", "'v' AS value")
        rows.write.format("replog").mode("append").options(**options(doors, topic=RIDES)).save()
        assert spark.read.format("replog").options(**options(doors, subscribe=RIDES)).load().count() >= 3
        given = ", ".join(f"`{name}` {value!r}" for name, value in options(doors, subscribe=RIDES).items())
        spark.sql(f"CREATE TEMPORARY VIEW rides USING replog OPTIONS ({given})")
        assert spark.sql("SELECT count(*) AS c FROM rides").first()["c"] >= 3
        spark.catalog.dropTempView("rides")
        with pytest.raises(Exception, match="failed"):
            spark.read.format("replog").options(**options(doors, "canary-wrong", subscribe=RIDES)).load().count()
    texts = [path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()]
    assert any("SparkListenerSQLExecutionStart" in text for text in texts), "a plan is in it"
    assert not [line for text in texts for line in text.splitlines() if PASSWORD in line or "canary" in line]


def test_a_wrong_password_ends_a_query_at_once_and_is_not_shown(spark: Any, doors: SecureDoors) -> None:
    with pytest.raises(Exception, match='login of user "alice" by SCRAM-SHA-512 failed') as raised:
        spark.read.format("replog").options(**options(doors, "canary-wrong", subscribe=RIDES)).load().count()
    assert "canary" not in str(raised.value)
    rows = spark.range(3).selectExpr("'k' AS key", "'v' AS value")
    with pytest.raises(Exception, match='login of user "alice" by SCRAM-SHA-512 failed') as raised:
        rows.write.format("replog").mode("append").options(**options(doors, "canary-wrong", topic=RIDES)).save()
    assert "canary" not in str(raised.value)


def test_a_job_with_a_delegation_token_reads_and_no_plan_shows_its_hmac(spark: Any, doors: SecureDoors) -> None:
    """Goal: driver and executors act for a user whose password they have not."""
    with SyncAdmin(doors.at("SASL_SSL"), security=doors.scram()) as admin:
        admin.create_topic(HELD, 2, 1)
        held = admin.create_delegation_token()
        token_hmac = held.hmac.reveal()
        until(lambda: held.token.token_id in {each.token.token_id for each in admin.describe_delegation_tokens()})
    as_holder = {"kafka.sasl.username": held.token.token_id, "kafka.sasl.tokenauth": "true"}
    rows = spark.range(ROWS).selectExpr("concat('k', id) AS key", "concat('ride ', id) AS value")
    rows.write.format("replog").mode("append").options(**options(doors, token_hmac, topic=HELD, **as_holder)).save()
    read = spark.read.format("replog").options(**options(doors, token_hmac, subscribe=HELD, **as_holder)).load()
    assert read.count() == ROWS
    plans = [read._jdf.queryExecution().toString(), str(read), read._jdf.queryExecution().logical().toString()]
    assert not [text for text in plans if token_hmac in text]
