"""A node of replog as a process of its own, started again and again from nothing."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.meter import Timing
from bench.model import System, WrongResultError
from bench.systems.child_processes import dying_with_us

CONFIG = """\
"node.id" = 1
"cluster.id" = "bench"
"log.dirs" = ["data"]
"listeners" = ["127.0.0.1:0"]
"""
LISTENS = b" listens on "
IMPORTED = "import replog.broker.__main__; print(flush=True); input()"

ACKNOWLEDGED = b"acknowledged"
EMBEDDED = """\
import replog
from replog.client import SyncAdmin, SyncProducer

with replog.embedded() as broker:
    with SyncAdmin(broker.bootstrap_servers) as admin:
        admin.create_topic("first")
    with SyncProducer(broker.bootstrap_servers) as producer:
        producer.send("first", b"value")
        producer.flush()
        print("acknowledged", flush=True)
        input()
"""


class ReplogProcess(System):
    """Starts the module `replog.broker`, or a program with a broker in it, with the interpreter of this process."""

    name = "replog"

    def __init__(self) -> None:
        self._directory: Path | None = None

    def start(self, directory: Path) -> None:
        self._directory = directory

    def imported(self) -> Timing:
        """Returns what it took until the modules of a node were imported."""
        return self._until(b"\n", "-c", IMPORTED)

    def listening(self) -> Timing:
        """Returns what it took until a node with an empty folder said that it listens."""
        return self._until(LISTENS, "-m", "replog.broker", "--config", "server.toml", "--accept-empty")

    def acknowledged(self) -> Timing:
        """Returns what it took until a broker within a program had acknowledged its first record."""
        return self._until(ACKNOWLEDGED, "-c", EMBEDDED)

    def _until(self, words: bytes, *arguments: str) -> Timing:
        with tempfile.TemporaryDirectory(dir=self._directory) as directory:
            (Path(directory) / "server.toml").write_text(CONFIG, encoding="utf-8")
            started_s = time.perf_counter()
            with subprocess.Popen(
                dying_with_us(sys.executable, "-P", *arguments),
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            ) as process:
                try:
                    return _wait_for(words, process, started_s)
                finally:
                    process.kill()


def _wait_for(words: bytes, process: subprocess.Popen[bytes], started_s: float) -> Timing:
    lines = []
    for line in process.stdout or ():
        if words in line:
            took_s = time.perf_counter() - started_s
            times = psutil.Process(process.pid).cpu_times()
            return Timing(took_s, times.user + times.system)
        lines.append(line.decode(errors="replace").strip())
    raise WrongResultError(f"the process ended: {'; '.join(lines[-3:])}")
