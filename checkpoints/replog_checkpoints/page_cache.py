"""What Linux offers about the page cache and Python's `os` does not: reading only what is in it, writing it back early.

Why ctypes: both are single calls of the C library, and calling them this way lets other Python threads run meanwhile.
Where the C library or the file system has no such call, the answer is "not supported", never an error.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Callable
from typing import Any, Final

START: Final = 2  # SYNC_FILE_RANGE_WRITE
START_AND_WAIT: Final = 7  # and _WAIT_BEFORE, _WAIT_AFTER
_RWF_NOWAIT: Final = 8
_UNSUPPORTED: Final = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ESPIPE})


class UnsupportedError(Exception):
    """This system or this file system has no such call.  Stays inside this library."""


class _Buffer(ctypes.Structure):
    """One `struct iovec`."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def read_cached(fd: int, length: int, position: int) -> bytes | None:
    """Reads `length` bytes if all of them are in the page cache; returns None if not.

    The bytes object is filled in place: a buffer that is copied afterwards would cost as much as the read.

    Raises:
        UnsupportedError: The file system cannot tell (tmpfs).
        OSError: The descriptor cannot be read.
    """
    call = _preadv2()
    if call is None:
        raise UnsupportedError
    if length == 0:
        return b""
    data: bytes = _new_bytes(None, length)
    buffer = _Buffer(_address_of(data), length)
    count = call(fd, ctypes.byref(buffer), 1, position, _RWF_NOWAIT)
    if count >= 0:
        return data if count == length else None
    error_number = ctypes.get_errno()
    if error_number in {errno.EAGAIN, errno.EINTR}:
        return None
    if error_number in _UNSUPPORTED:
        raise UnsupportedError
    raise OSError(error_number, os.strerror(error_number))


def write_back(fd: int, position: int, length: int, how: int) -> None:
    """Calls `sync_file_range(2)` with the flags `how`; changes nothing where the system has no such call.

    Raises:
        OSError: Dirty pages could not be written, or the descriptor is closed.
    """
    call = _sync_file_range()
    if call is None or call(fd, position, length, how) == 0:
        return
    error_number = ctypes.get_errno()
    if error_number not in _UNSUPPORTED:
        raise OSError(error_number, os.strerror(error_number))


_new_bytes: Final = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.restype = ctypes.py_object
_new_bytes.argtypes = [ctypes.c_char_p, ctypes.c_ssize_t]
_address_of: Final = ctypes.pythonapi.PyBytes_AsString
_address_of.restype = ctypes.c_void_p
_address_of.argtypes = [ctypes.py_object]


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def _preadv2() -> Callable[..., Any] | None:
    """Returns the function of the C library; None where the library has none."""
    try:
        call = _library().preadv2
    except AttributeError:
        return None
    call.restype = ctypes.c_ssize_t
    call.argtypes = [ctypes.c_int, ctypes.POINTER(_Buffer), ctypes.c_int, ctypes.c_int64, ctypes.c_int]
    return call


@functools.cache
def _sync_file_range() -> Callable[..., Any] | None:
    """Returns the function of the C library; None where the library has none."""
    try:
        call = _library().sync_file_range
    except AttributeError:
        return None
    call.restype = ctypes.c_int
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return call
