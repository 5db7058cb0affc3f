"""What `replog cluster` shows while nodes check their logs: read from the ends of their log files."""

from __future__ import annotations

import logging
from pathlib import Path

from replog.broker.node.recovery_log import RecoveryLog
from replog.cluster.local_cluster import LocalCluster
from replog.cluster.node_spec import NodeSpec
from replog.cluster.processes import last_lines
from replog.log import RecoveryProgress


def test_nodes_that_check_their_logs_are_told_of_and_others_are_not(tmp_path: Path) -> None:
    specs = {number: NodeSpec(number, 1, 2, tmp_path / f"node-{number}") for number in (1, 2, 3)}
    cluster = LocalCluster(tmp_path, "c", specs, die_with_parent=True)
    for number in (1, 2):
        specs[number].directory.mkdir()
    logger, handler = logging.getLogger("replog"), logging.FileHandler(specs[1].log_file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        RecoveryLog()(RecoveryProgress("/data", 1, 4, 250_000_000, 1_000_000_000, 1_000, 3_000))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()
    specs[2].log_file.write_text("recovering /data: 4 of 4 logs open\nbroker is running\n")
    shown = cluster._recovering({1, 2, 3})
    assert shown == "node 1 recovering /data: 1 of 4 logs open, 250 of 1,000 MB checked, about 3 s left"
    assert cluster._recovering({2, 3}) == ""


def test_the_end_of_a_large_log_file_is_read_alone(tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    file.write_bytes(b"\xc3\xa9" * 100_000 + b"\nlast but one\nlast\n")
    assert last_lines(file, 2) == "last but one\nlast"
    assert len(last_lines(file, 9)) <= 64 * 1024
    assert last_lines(tmp_path / "none", 2) == ""
