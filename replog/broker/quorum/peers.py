"""The ways to the other nodes of the quorum, kept in step with who votes and who leads, and the requests that come from them.

A node is looked for at every address that is known for it: where the voter set in force says it listens, where a leader
was said to listen, where the configuration says.  Whoever none of them names any more loses its link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from replog.broker.quorum.peer_link import PeerLink
from replog.errors import MalformedFrameError
from replog.rpc.messages import Hello
from replog.rpc.quorum_codec import QuorumFrame
from replog.rpc.transport import Stream
from replog.waiting.task_ends import until_one_ends
from replog_quorum import VoterSet
from replog_quorum.messages import Request, Response

MAX_WAITING_RESPONSES = 256
MAX_OPEN_REQUESTS = 4096


class _InboundStream:
    """Answers to one node that asks us: a bounded queue and the task that writes it."""

    def __init__(self, stream: Stream[QuorumFrame, QuorumFrame]) -> None:
        self._stream = stream
        self._queue: asyncio.Queue[Response] = asyncio.Queue(MAX_WAITING_RESPONSES)

    def offer(self, response: Response) -> None:
        if not self._queue.full():  # a peer that does not read its answers gets none; it will ask again
            self._queue.put_nowait(response)

    async def write(self) -> None:
        while True:
            await self._stream.send(await self._queue.get())


class InboundRequests:
    """All streams on which other nodes ask this one.

    Every stream has a bounded queue of answers of its own: a peer that does not read holds up nobody else.

    Args:
        on_request: The function that is called with the asking node's id and its request.
    """

    def __init__(self, on_request: Callable[[int, Request], None]) -> None:
        self._on_request = on_request
        self._open: dict[tuple[int, int], _InboundStream] = {}

    async def serve(self, hello: Hello, stream: Stream[QuorumFrame, QuorumFrame]) -> None:
        """Takes requests until the stream ends."""
        inbound = _InboundStream(stream)
        try:
            await until_one_ends(self._read(hello, stream, inbound), inbound.write())
        finally:
            self._open = {key: value for key, value in self._open.items() if value is not inbound}

    def answer(self, node_id: int, response: Response) -> None:
        """Sends an answer back on the stream of its request; nothing happens when that has ended."""
        inbound = self._open.pop((node_id, response.correlation_id), None)
        if inbound is not None:
            inbound.offer(response)

    async def _read(self, hello: Hello, stream: Stream[QuorumFrame, QuorumFrame], inbound: _InboundStream) -> None:
        while True:
            message = await stream.receive()
            if not isinstance(message, Request):
                raise MalformedFrameError(f"node {hello.node_id} sent {type(message).__name__} as a request")
            if len(self._open) >= MAX_OPEN_REQUESTS:
                self._open.pop(next(iter(self._open)))
            self._open[hello.node_id, message.correlation_id] = inbound
            self._on_request(hello.node_id, message)


MakeLink = Callable[[int, tuple[str, ...]], PeerLink]


class QuorumPeers:
    """Links by node id.

    Args:
        node_id: The id of this node, which has no link to itself.
        configured: The address of each voter by node id, as the configuration names them.
        make_link: The function that makes a link to a peer and its addresses, the first one to be tried first.
    """

    def __init__(self, node_id: int, configured: Mapping[int, str], make_link: MakeLink) -> None:
        self._node_id = node_id
        self._configured = dict(configured)
        self._make_link = make_link
        self._voters: dict[int, str] = {}
        self._learned: dict[int, str] = {}
        self._links: dict[int, PeerLink] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Opens a link to every node that is known."""
        self._adjust()

    async def stop(self) -> None:
        """Closes all links."""
        for link in self._links.values():
            await link.stop()
        self._links.clear()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._links)

    def set_voters(self, voters: VoterSet) -> None:
        """Takes in the voter set that is in force now, forgets what was learned before, and adjusts the links."""
        self._voters = {voter.voter_id: voter.endpoint for voter in voters.voters}
        self._learned.clear()
        self._adjust()

    def learn(self, node_id: int, address: str) -> None:
        """Takes in where a node that leads listens, and adjusts the links."""
        self._learned[node_id] = address
        self._adjust()

    def address_of(self, node_id: int) -> str | None:
        """Returns where a node most likely listens; None for one that nobody names."""
        addresses = self._addresses(node_id)
        return addresses[0] if addresses else None

    def send(self, node_id: int, request: Request) -> bool:
        """Queues a request; returns whether there is a way to that node."""
        link = self._links.get(node_id)
        if link is None:
            return False
        link.send(request)
        return True

    def _addresses(self, node_id: int) -> tuple[str, ...]:
        known = (self._learned.get(node_id), self._voters.get(node_id), self._configured.get(node_id))
        return tuple(dict.fromkeys(address for address in known if address))

    def _adjust(self) -> None:
        wanted = {*self._learned, *self._voters, *self._configured} - {self._node_id}
        for node_id in sorted(self._links.keys() - wanted):
            self._end(self._links.pop(node_id))
        for node_id in sorted(wanted):
            addresses = self._addresses(node_id)
            link = self._links.get(node_id)
            if link is None:
                link = self._links[node_id] = self._make_link(node_id, addresses)
                link.start()
            else:
                link.set_addresses(addresses)

    def _end(self, link: PeerLink) -> None:
        task = asyncio.create_task(link.stop(), name="quorum-link-end")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
