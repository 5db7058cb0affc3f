"""Looks after brokers for the active controller: one that dies is missed at once, not at the end of its session.

A stream to each of them stays open.  Its end is a hint, and starts a probe: a new connection.  A refusal proves that
nobody listens at the address, and the hello of another incarnation that the one before is gone.  Anything else proves
nothing: a paused broker, or a lost packet, is left to its session.  A controller whose own loop was held up has no
opinion.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from replog.broker.loop_lag import LoopLag
from replog.broker.tasks import watched_task
from replog.controller.messages import BrokerGone, WatchedBroker
from replog.errors import BrokerClosedError, ReplogError
from replog.rpc.messages import Hello
from replog.rpc.transport import ConnectionLostError, PeerTransport

PROBE_TIMEOUT_S = 1.0
PROBE_PAUSE_S = 0.5
"""After a probe that found nobody, before the next one."""

PROBES_AT_ONCE = 64
MAX_LOOP_LAG_MS = 500


class BrokerWatcher:
    """Watches a set of brokers.

    Args:
        transport: The way to the brokers.
        hello: The function that makes the first message of every stream of this node.
        loop_lag: The lag of this node's event loop.
        on_gone: The function that is told that a broker does not run any more, again and again while it is watched.
        on_failure: The function that is told about a bug; the node stops then.
    """

    def __init__(
        self,
        transport: PeerTransport,
        hello: Callable[[], Hello],
        loop_lag: LoopLag,
        on_gone: Callable[[BrokerGone], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._transport = transport
        self._hello = hello
        self._loop_lag = loop_lag
        self._on_gone = on_gone
        self._on_failure = on_failure
        self._slots = asyncio.Semaphore(PROBES_AT_ONCE)
        self._watches: dict[WatchedBroker, asyncio.Task[None]] = {}
        self._present: set[int] = set()
        self._ending: set[asyncio.Task[None]] = set()

    def watch(self, brokers: Sequence[WatchedBroker]) -> None:
        """Watches exactly these brokers from now on, but for the one on this node, which is known to run."""
        own = self._hello()
        wanted = dict.fromkeys(broker for broker in brokers if broker.broker_id != own.node_id)
        self._present.discard(own.node_id)
        if any((broker.broker_id, broker.incarnation_id) == (own.node_id, own.incarnation_id) for broker in brokers):
            self._present.add(own.node_id)
        for broker in [broker for broker in self._watches if broker not in wanted]:
            self._end(self._watches.pop(broker))
        for broker in wanted:
            if broker not in self._watches:
                self._watches[broker] = watched_task(
                    self._watch(broker), name=f"watch-broker-{broker.broker_id}", on_failure=self._on_failure
                )

    async def stop(self) -> None:
        """Ends all watches and waits for them."""
        self.watch(())
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _watch(self, broker: WatchedBroker) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            reason = await self._follow(broker)
            if reason and self._loop_lag.worst_ms() <= MAX_LOOP_LAG_MS:
                with contextlib.suppress(BrokerClosedError):
                    self._on_gone(BrokerGone(broker.broker_id, broker.broker_epoch, reason, frozenset(self._present)))
            elif not reason and loop.time() - began_s > PROBE_PAUSE_S:
                continue  # a stream that has worked has ended: that is the hint
            await asyncio.sleep(PROBE_PAUSE_S)

    async def _follow(self, broker: WatchedBroker) -> str:
        """Stays connected for as long as that works; returns why the broker cannot run any more, "" without a proof."""
        address = f"{broker.host}:{broker.port}"
        connection = self._transport.connect(address, purpose="presence", node_id=broker.broker_id)
        try:
            async with self._slots, asyncio.timeout(PROBE_TIMEOUT_S):
                presence = await connection.open_presence(self._hello())
            if presence.peer.node_id != broker.broker_id:
                return ""
            if presence.peer.incarnation_id != broker.incarnation_id:
                return f"another incarnation answers at {address}"
            self._present.add(broker.broker_id)
            try:
                await presence.wait_lost()
            finally:
                self._present.discard(broker.broker_id)
        except ConnectionLostError as error:
            return f"nobody listens at {address}" if error.refused else ""
        except (ReplogError, TimeoutError):
            return ""
        finally:
            await connection.close()
        return ""
