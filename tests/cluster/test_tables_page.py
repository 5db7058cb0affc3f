"""The programs of docs/TABLES.md do what the page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import replog
from replog.client import SyncAdmin, SyncProducer
from tests.lint import page_examples


def test_the_page(tmp_path: Path) -> None:
    with replog.embedded() as broker:
        with SyncAdmin(broker.bootstrap_servers) as admin, SyncProducer(broker.bootstrap_servers) as producer:
            admin.create_topic("rides", 1)
            admin.create_topic("users", 1, configs={"cleanup.policy": "compact"})
            producer.send_many("rides", [b"x"] * 100).result()
            for value in (b"first", b"second"):
                producer.send("users", value, b"ann").result()
        outputs = [
            subprocess.run(
                [sys.executable, "-c", block.replace("127.0.0.1:9092", broker.bootstrap_servers)],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for block in page_examples.blocks("docs/TABLES.md")
        ]
    assert outputs == ["100\n100\n", "800 records of topic log\n", "1 b'second'\n{b'ann': b'first'}\n"]
