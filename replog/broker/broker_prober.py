"""Looks whether brokers are there: a new controller does not trust for a whole session what the old one knew.

A refused connection proves that nobody listens at the address, so the process is gone.  Anything else proves nothing: a
paused broker, or a lost packet, is left to its session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from replog.controller.messages import BrokerProbed, ProbeBroker
from replog.errors import BrokerClosedError, ReplogError
from replog.rpc.messages import Hello
from replog.rpc.transport import ConnectionLostError, Transport

PROBE_TIMEOUT_S = 1.0
PROBES_AT_ONCE = 64


class BrokerProber:
    """Probes brokers, some at a time.

    Args:
        transport: to reach them.
        hello: first message of every stream of this node.
        on_probed: called with every answer.
    """

    def __init__(
        self, transport: Transport, hello: Callable[[], Hello], on_probed: Callable[[BrokerProbed], None]
    ) -> None:
        self._transport = transport
        self._hello = hello
        self._on_probed = on_probed
        self._slots = asyncio.Semaphore(PROBES_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def probe(self, request: ProbeBroker) -> None:
        """Begins to look; the answer comes once."""
        task = asyncio.create_task(self._probe(request), name=f"probe-broker-{request.broker_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Looks no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _probe(self, request: ProbeBroker) -> None:
        async with self._slots:
            is_dead = await self._is_refused(f"{request.host}:{request.port}")
        with contextlib.suppress(BrokerClosedError):
            self._on_probed(BrokerProbed(request.broker_id, request.broker_epoch, is_dead))

    async def _is_refused(self, address: str) -> bool:
        connection = self._transport.connect(address, purpose="probe")
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                stream = await connection.open_fetch(self._hello())
                await stream.close()
        except ConnectionLostError as error:
            return error.refused
        except (ReplogError, TimeoutError):
            return False
        finally:
            await connection.close()
        return False
