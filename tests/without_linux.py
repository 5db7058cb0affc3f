"""What only Linux has, taken away from a Python before it imports anything of replog."""

from __future__ import annotations

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
    socket: ("AF_NETLINK", "SO_DOMAIN", "SO_PROTOCOL", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT", "SOCK_SEQPACKET", "SOCK_CLOEXEC", "SOCK_NONBLOCK"),
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

if hasattr(os, "process_cpu_count"):  # Python 3.13; on Linux it asks sched_getaffinity
    os.process_cpu_count = os.cpu_count

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
"""The source that does it, to stand before a program, or in `sitecustomize.py`."""
