"""Checks an installed wheel: ``python tools/check_wheel.py``, with nothing of the checkout on the path.

The compiled codec must be there and in use (with ``REPLOG_PURE=1``: must not be there), and with it the command, the plugin of pytest,
the files of the console and the marks of typed packages.  A log must keep what it is given, and a broker what a client sends it.  What is
for checkouts must not be there: generated sources, examples, and the tool that breaks clusters.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOR_CHECKOUTS = ("examples", "replog_chaos")
ENTRY_POINTS = {"console_scripts": "replog.cli.main:script", "pytest11": "replog.testing.pytest_plugin"}
FILES = (
    "replog/py.typed",
    "replog_timeline/py.typed",
    "replog_quorum/py.typed",
    "replog_checkpoints/py.typed",
    "replog/console/static/index.html",
    "replog/console/static/console.js",
    "replog/console/static/console.css",
    "replog/pb/v1/metadata_pb2.pyi",
)


def main() -> int:
    """Returns 0 for a good wheel; otherwise says on stderr what is wrong."""
    import replog
    from replog import records
    from replog.spark import json_decoder

    package = Path(replog.__file__).parent
    strangers = [name for name in FOR_CHECKOUTS if find_spec(name) is not None]
    generated = sorted(path.name for path in package.rglob("*.c"))
    with tempfile.TemporaryDirectory() as folder, replog.open_log(f"{folder}/log") as log:
        log.append(b"value", key=b"key")
        kept = [(record.offset, record.key, record.value) for record in log]
    missing = [name for name in FILES if not (package.parent / name).is_file()]
    points = {point.group: point.value for point in distribution("replog").entry_points}
    read = read_through_a_broker()
    wants_compiled = os.environ.get("REPLOG_PURE") != "1"
    problems = [
        problem
        for is_there, problem in (
            (ROOT in package.parents and ".venv" not in package.parts, f"replog comes from the checkout: {package}"),
            ((records.IMPLEMENTATION != "python") != wants_compiled, f"the codec in use is {records.IMPLEMENTATION}"),
            (
                (json_decoder.IMPLEMENTATION != "python") != wants_compiled,
                f"the decoder of json values in use is {json_decoder.IMPLEMENTATION}",
            ),
            (bool(missing), f"files are missing: {missing}"),
            (points != ENTRY_POINTS, f"its entry points are {points}"),
            (bool(generated), f"generated sources are in it: {generated}"),
            (bool(strangers), f"what is for checkouts can be imported: {strangers}"),
            (kept != [(0, b"key", b"value")], f"a log gave back {kept}"),
            (read != [b"value"], f"a broker gave back {read}"),
        )
        if is_there
    ]
    for problem in problems:
        sys.stderr.write(f"error: {problem}\n")
    return 1 if problems else 0


def read_through_a_broker() -> list[bytes | None]:
    """Returns the values of a topic in which a client has written one."""
    import replog
    from replog.client import SyncAdmin, SyncConsumer, SyncProducer

    with replog.embedded() as broker:
        servers = broker.bootstrap_servers
        with SyncAdmin(servers) as admin:
            admin.create_topic("t", num_partitions=1)
        with SyncProducer(servers) as producer:
            producer.send("t", b"value").result()
        with SyncConsumer(servers) as consumer:
            consumer.assign([("t", 0)])
            return [record.value for record in consumer.poll(timeout_ms=30_000)]


if __name__ == "__main__":
    sys.exit(main())
