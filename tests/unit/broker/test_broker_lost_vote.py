"""A node that the voter set names with another log directory says so: it does not vote, and may be all the quorum there is."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest
from broker_kit import wait_until
from msgspec.structs import replace
from node_kit import Running, config, node

from replog.broker.node.environment import NodeEnvironment
from replog.broker.node.node import Node
from replog.broker.quorum.voter_records import lost_vote
from replog.errors import NotControllerError
from replog.rpc.node_messages import DescribeQuorumRequest
from replog.testing import SimulatedFileSystem
from replog_checkpoints import read_meta_properties, uuid_to_text, write_meta_properties
from replog_quorum import Voter, VoterSet

META = "/data/meta.properties"
NAMED, OTHER = UUID(int=2**100 + 1), UUID(int=2**100 + 2)


def flip_directory_id(fs: SimulatedFileSystem) -> tuple[str, str]:
    """Flips a bit of the id in the file; returns what it was and what it is."""
    meta = read_meta_properties(fs, META)
    assert meta is not None
    changed = replace(meta, directory_id=UUID(int=meta.directory_id.int ^ 1 << 90))
    write_meta_properties(fs, META, changed)
    return uuid_to_text(meta.directory_id), uuid_to_text(changed.directory_id)


async def test_a_flipped_character_of_the_directory_id_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """The node waited for a quorum for ever, without a cause."""
    fs = SimulatedFileSystem()
    async with node(fs) as it:
        driver = it.node.parts.metadata.quorum
        await wait_until(lambda: not driver.status().voter_set.is_static)
        assert driver.lost_vote == ""
    before, after = flip_directory_id(fs)
    with caplog.at_level(logging.WARNING, "replog.broker.quorum"):
        waiting = Running(await Node.start(config(), environment=NodeEnvironment(fs=fs)))
        try:
            await wait_until(lambda: "does not vote" in caplog.text)
            for said in (
                f"names it with directory {before}",
                f"{META} says {after}",
                f"put directory.id={before} back",
            ):
                assert said in caplog.text
            with pytest.raises(NotControllerError, match=f"put directory.id={before} back"):
                await waiting.connection.call(DescribeQuorumRequest(), timeout_ms=60_000)
        finally:
            await waiting.close()
            await waiting.node.stop()
    assert caplog.text.count("does not vote") == 1


def test_who_votes_and_who_is_no_voter_has_not_lost_a_vote() -> None:
    voters = VoterSet((Voter(1, NAMED, "a:1"), Voter(2, None, "b:2")))
    assert lost_vote(voters, 1, NAMED, "/data") == ""
    assert lost_vote(voters, 2, OTHER, "/data") == "", "a static set takes any directory"
    assert lost_vote(voters, 3, OTHER, "/data") == "", "an observer"
    assert "remove-voter 1" in lost_vote(voters, 1, OTHER, "/data")
