"""The ways to the other nodes of the quorum, kept in step with who votes and who leads.

A node is looked for at every address that is known for it: where the voter set in force says it listens, where a leader
was said to listen, where the configuration says.  Whoever none of them names any more loses its link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from replog.broker.quorum.peer_link import PeerLink
from replog_quorum import VoterSet
from replog_quorum.messages import Request

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
