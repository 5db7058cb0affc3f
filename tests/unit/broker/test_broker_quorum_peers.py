"""Who has a link: voters in force, voters of the configuration, leaders that were heard of."""

from __future__ import annotations

import asyncio
from uuid import UUID

from broker_fakes import FakeNetwork

from replog.broker.quorum.peer_link import PeerLink
from replog.broker.quorum.peers import QuorumPeers
from replog.rpc.messages import Hello
from replog_quorum import Voter, VoterSet
from replog_quorum.messages import UpdateVoterRequest

CONFIGURED = {1: "a:1", 2: "b:2", 3: "c:3"}


def voter_set(**endpoints: str) -> VoterSet:
    """`voter_set(n2="x:2")`."""
    voters = [Voter(int(name[1:]), UUID(int=int(name[1:])), endpoint) for name, endpoint in endpoints.items()]
    return VoterSet(tuple(sorted(voters, key=lambda voter: voter.voter_id)))


class Rig:
    def __init__(self, configured: dict[int, str]) -> None:
        self.made: dict[int, tuple[str, ...]] = {}
        self.network = FakeNetwork()
        self.peers = QuorumPeers(1, configured, self.make)

    def make(self, peer_id: int, addresses: tuple[str, ...]) -> PeerLink:
        self.made[peer_id] = addresses
        return PeerLink(
            peer_id=peer_id,
            addresses=addresses,
            transport=self.network,  # type: ignore[arg-type]  # a fake
            hello=lambda: Hello("c", 1, UUID(int=1)),
            request_timeout_s=5,
            on_response=lambda _: None,
            on_failed=lambda *_: None,
            on_failure=lambda error: None,
        )


def request(correlation_id: int) -> UpdateVoterRequest:
    return UpdateVoterRequest(correlation_id, 1, 1, Voter(1, UUID(int=1), "a:1"))


async def test_configured_voters_are_reached_and_this_node_is_not() -> None:
    rig = Rig(CONFIGURED)
    rig.peers.start()
    assert rig.made == {2: ("b:2",), 3: ("c:3",)}
    assert rig.peers.send(2, request(1))
    assert not rig.peers.send(1, request(2))
    assert not rig.peers.send(9, request(3))
    await rig.peers.stop()


async def test_where_the_voter_set_says_comes_before_where_the_configuration_says() -> None:
    rig = Rig({1: "a:1", 2: "b:2"})
    rig.peers.start()
    rig.peers.set_voters(voter_set(n1="a:1", n2="moved:2", n4="d:4"))
    assert rig.made[4] == ("d:4",)
    assert rig.peers.address_of(2) == "moved:2"
    await rig.peers.stop()


async def test_a_leader_nobody_named_is_reached_where_it_was_heard_of() -> None:
    rig = Rig({1: "a:1", 2: "b:2"})
    rig.peers.start()
    rig.peers.learn(7, "new:7")
    assert rig.made[7] == ("new:7",)
    assert rig.peers.send(7, request(1))
    await rig.peers.stop()


async def test_who_is_named_no_more_loses_its_link() -> None:
    rig = Rig({1: "a:1"})
    rig.peers.start()
    rig.peers.set_voters(voter_set(n1="a:1", n2="b:2", n3="c:3"))
    assert len(rig.peers) == 2
    rig.peers.set_voters(voter_set(n1="a:1", n3="c:3"))
    assert len(rig.peers) == 1
    assert not rig.peers.send(2, request(1))
    await asyncio.sleep(0)
    await rig.peers.stop()
    assert all(connection.closed for connection in rig.network.connections)
