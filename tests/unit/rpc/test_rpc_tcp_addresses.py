"""Where a host is reached, also for threads that outlive the main thread of their process."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from replog.tcp.dialing import create_connection


async def without_threads() -> None:
    """Leaves the loop in the state in which Python puts it when the main thread has ended."""
    pool = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(pool)
    pool.shutdown()


async def test_an_address_is_reached_without_a_thread() -> None:
    await without_threads()
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    transport, _ = await create_connection(asyncio.Protocol, *address)
    assert transport.get_extra_info("peername") == address
    transport.close()
    server.close()


async def test_a_name_that_nobody_can_ask_for_is_an_error_that_says_so() -> None:
    await without_threads()
    with pytest.raises(OSError, match="name brokers by their addresses"):
        await create_connection(asyncio.Protocol, "localhost", 9)
