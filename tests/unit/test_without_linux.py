"""Development on macOS: all that only Linux has is taken away before replog is imported, and a log and a broker work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TAKE_AWAY = """
import ctypes, errno, fcntl, os, resource, select, signal, socket, sys
for module, names in {
    fcntl: ("F_OFD_SETLK", "F_OFD_GETLK", "F_OFD_SETLKW"),
    os: (
        "fdatasync", "posix_fallocate", "posix_fadvise", "preadv", "pwritev", "sendfile", "copy_file_range", "splice", "eventfd",
        "memfd_create", "pidfd_open", "sched_getaffinity", "sched_setaffinity", "O_DIRECT", "O_PATH", "O_TMPFILE",
    ),
    select: ("epoll",),
    signal: ("pidfd_send_signal",),
    socket: ("SO_DOMAIN", "SO_PROTOCOL", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT", "SOCK_SEQPACKET", "SOCK_CLOEXEC", "SOCK_NONBLOCK"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

class Library(ctypes.CDLL):
    def __getattr__(self, name):
        if name in {"preadv2", "sync_file_range", "mallopt", "prctl", "malloc_trim"}:
            raise AttributeError(name)
        return super().__getattr__(name)

def refuse_proc(event, arguments):
    if event in {"open", "os.listdir", "os.scandir"} and str(arguments[0]).startswith(("/proc", "/sys")):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])

def no_more_files(kind, limits):
    raise ValueError("current limit exceeds maximum limit")

ctypes.CDLL, resource.setrlimit = Library, no_more_files
sys.addaudithook(refuse_proc)
"""

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


@pytest.mark.parametrize(
    ("code", "told"), [(LOG, "locked\n3145728 6 b'\\x00abcd\\x00' 1\n"), (BROKER, "0\n")], ids=["log", "broker"]
)
def test_what_only_linux_has_is_not_needed(code: str, told: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", TAKE_AWAY + code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (told, 0), done.stderr
