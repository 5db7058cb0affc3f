"""Development on macOS: all that only Linux has is taken away before replog is imported, and a log and a broker work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.without_linux import TAKE_AWAY

LOG = """
import fcntl, replog
with replog.open_log("log", segment_bytes=4096) as log:
    assert log.append_many([b"x" * 100] * 100) == range(100)
    try:
        replog.open_log("log")
    except replog.errors.DirectoryLockedError:
        print("locked")
synced, plain = [], fcntl.fcntl
fcntl.F_FULLFSYNC = 51  # of macOS
fcntl.fcntl = lambda fd, what, *rest: synced.append(fd) if what == 51 else plain(fd, what, *rest)
for name in [name for name in sys.modules if name.startswith("replog_checkpoints")]:
    sys.modules.pop(name)
from replog_checkpoints import OpenMode, OsFileSystem
with replog.open_log("log") as log:
    assert [record.value for record in log] == [b"x" * 100] * 100
file = OsFileSystem().open("file", OpenMode.CREATE)
file.allocate(3 << 20)
file.pwrite([b"ab", memoryview(b"cd")], 1)
target = bytearray(6)
file.sync()
file.drop_cache(0, 100)
print(file.size(), file.pread_into(target, 0), bytes(target), len(synced))
"""

BROKER = """
import replog
from replog.client import SyncAdmin, SyncProducer
from replog.cluster import node_processes
from replog.broker.process import die_with_parent, open_descriptors, resident_bytes, tune_broker_process
tune_broker_process()
die_with_parent(os.getppid())
assert (open_descriptors(), resident_bytes()) == (0, 0)
assert node_processes._started_server() is None  # nodes of a local cluster are not forked
with replog.embedded() as broker, SyncAdmin(broker.bootstrap_servers) as admin:
    admin.create_topic("t")
    with SyncProducer(broker.bootstrap_servers) as producer:
        print(producer.send("t", b"v").result().offset)
"""

LINKS = """
import asyncio
from replog.errors import InvalidRequestError
from replog.testing.machines.proxies import Proxies
try:
    asyncio.run(Proxies([1]).__aenter__())
except InvalidRequestError as error:
    print(str(error).partition(":")[0])
"""


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (LOG, "locked\n3145728 6 b'\\x00abcd\\x00' 1\n"),
        (BROKER, "0\n"),
        (LINKS, "a cluster whose links can be cut needs Linux\n"),
    ],
    ids=["log", "broker", "links"],
)
def test_what_only_linux_has_is_not_needed(code: str, told: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", TAKE_AWAY + code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (told, 0), done.stderr
