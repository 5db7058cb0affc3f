"""Which process holds a TCP connection of this machine: asked of the kernel for that connection alone.

The tables in /proc name every connection, and those that have just ended: a machine that runs many tests has a hundred thousand
of them, and to read them all for each connection took half a second, longer than the nodes wait for one another.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import Final

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_NLMSG_ERROR: Final = 2
_NO_COOKIE: Final = 0xFFFFFFFF
_ALL_STATES: Final = 0xFFFFFFFF

_HEADER: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_REQUEST: Final = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_PORTS: Final = struct.Struct("!HH")
_ADDRESSES: Final = struct.Struct("!16s16s")
_REST_OF_ID: Final = struct.Struct("=III")  # interface, cookie
_INODE: Final = struct.Struct("=I")
_INODE_AT: Final = _HEADER.size + 4 + _PORTS.size + _ADDRESSES.size + _REST_OF_ID.size + 4 * 4
_ANSWER_BYTES_MAX: Final = 4096


def connection_inode(port: int, remote_port: int) -> int:
    """Returns the inode of the socket that has a connection over 127.0.0.1; 0: there is none.

    Args:
        port: The port of the socket itself.
        remote_port: The port at the other end; the kernel gives one local port to connections with several others.

    Raises:
        OSError: The kernel cannot be asked.
    """
    address = socket.inet_aton("127.0.0.1")
    body = (
        _REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ALL_STATES)
        + _PORTS.pack(port, remote_port)
        + _ADDRESSES.pack(address, address)
        + _REST_OF_ID.pack(0, _NO_COOKIE, _NO_COOKIE)
    )
    header = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(header + body)
        answer = kernel.recv(_ANSWER_BYTES_MAX)
    _, kind, _, _, _ = _HEADER.unpack_from(answer)
    if kind == _NLMSG_ERROR:
        (number,) = struct.unpack_from("=i", answer, _HEADER.size)
        if -number == errno.ENOENT:
            return 0
        raise OSError(-number, os.strerror(-number))
    (inode,) = _INODE.unpack_from(answer, _INODE_AT)
    return int(inode)
