"""Who gives up a connection over TLS at any step leaves nothing behind, and the next one works."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from node_certificates import NodeCertificates

from replog.tcp.dialing import create_connection

STEPS = 120
"""More turns of the loop than a handshake takes where both sides are in it."""


async def test_a_handshake_that_is_given_up_leaves_no_descriptor_behind(tmp_path: Path) -> None:
    """Goal: each descriptor is free for the next connection, which asyncio refuses while an older transport has it."""
    files = NodeCertificates(tmp_path / "certs")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.node(1))
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    tls = (ssl.create_default_context(cafile=str(files.authority)), "localhost")
    given_up = 0
    for steps in range(STEPS):
        dialing = asyncio.create_task(create_connection(asyncio.Protocol, "127.0.0.1", port, tls=tls))
        for _ in range(steps):
            await asyncio.sleep(0)
        dialing.cancel()
        try:
            transport, _ = await dialing
        except asyncio.CancelledError:
            given_up += 1
        else:
            transport.close()
        last, _ = await create_connection(asyncio.Protocol, "127.0.0.1", port)
        last.close()
        await asyncio.sleep(0)
    server.close()
    assert 0 < given_up < STEPS
