"""Quorum state: both versions round-trip, and a state that contradicts itself is neither read nor made."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replog.testing.simulated_filesystem import SimulatedFileSystem
from replog_checkpoints import DamagedCheckpointError, QuorumState, read_quorum_state, replace_file, write_quorum_state

node_ids = st.integers(0, 2**31 - 1)
states_v0 = st.builds(
    QuorumState,
    leader_id=st.none() | node_ids,
    leader_epoch=node_ids,
    voted_id=st.none() | node_ids,
    current_voters=st.lists(node_ids, unique=True, max_size=5).map(tuple),
    data_version=st.just(0),
)
states_v1 = st.builds(
    QuorumState,
    leader_id=st.none() | node_ids,
    leader_epoch=node_ids,
    voted_id=node_ids,
    voted_directory_id=st.none() | st.uuids(allow_nil=False),
)


@given(states_v0 | states_v1)
@settings(max_examples=80, deadline=None)
def test_round_trip(state: QuorumState) -> None:
    disk = SimulatedFileSystem()
    write_quorum_state(disk, "quorum-state", state)
    assert read_quorum_state(disk, "quorum-state") == state


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"[]", "not a JSON object"),
        (b"{}", "data_version is missing"),
        (b'{"data_version":2}', "data_version 2 is not supported"),
        (b'{"data_version":-1}', "data_version is not a number"),
        (b'{"data_version":true}', "data_version is not a number"),
        (b'{"leaderId":-2,"leaderEpoch":0,"votedId":-1,"currentVoters":[],"data_version":0}', "leaderId"),
        (b'{"leaderId":-1,"leaderEpoch":-1,"votedId":-1,"currentVoters":[],"data_version":0}', "leaderEpoch"),
        (b'{"leaderId":-1,"leaderEpoch":"1","votedId":-1,"currentVoters":[],"data_version":0}', "leaderEpoch"),
        (b'{"leaderId":-1,"leaderEpoch":0,"votedId":-1,"currentVoters":[1],"data_version":0}', "currentVoters"),
        (b'{"leaderId":-1,"leaderEpoch":0,"votedId":-1,"currentVoters":{},"data_version":0}', "currentVoters"),
        (b'{"leaderId":-1,"leaderEpoch":0,"votedId":-1,"currentVoters":[{}],"data_version":0}', "voterId"),
        (b'{"leaderId":-1,"leaderEpoch":0,"votedId":-1,"data_version":1}', "votedDirectoryId is missing"),
        (b'{"leaderId":-1,"leaderEpoch":0,"votedId":-1,"votedDirectoryId":7,"data_version":1}', "not a string"),
        (b'{"leaderId":-1,"leaderEpoch":0,"votedId":1,"votedDirectoryId":"AQ","data_version":1}', "'AQ'"),
        (
            b'{"leaderId":-1,"leaderEpoch":0,"votedId":-1,"votedDirectoryId":"AQIDBAUGBwgREhMUFRYXGA","data_version":1}',
            "needs a voted_id",
        ),
        (b'{"data_version":1,"data_version":1}', "appears twice"),
        (b"[" * 100_000, "not a readable JSON object"),
        (b'{"data_version":' + b"9" * 5000 + b"}", "not a readable JSON object"),
        (b'{"data_version":1', "not JSON"),
        (b"\xff", "not a readable JSON object"),
    ],
)
def test_damaged(refused: Any, data: bytes, reason: str) -> None:
    error = refused(read_quorum_state, data)
    assert error.line == 1
    assert reason in error.reason


def test_a_character_that_changes_is_found_wherever_it_makes_another_state(disk: SimulatedFileSystem) -> None:
    state = QuorumState(3, 1_234, 2, UUID(int=500))
    write_quorum_state(disk, "quorum-state", state)
    data = disk.image()["/quorum-state"]
    found = 0
    for position in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            replace_file(disk, "quorum-state", bytes(changed))
            try:
                assert read_quorum_state(disk, "quorum-state") == state  # the name of the checksum is none any more
            except DamagedCheckpointError:
                found += 1
    assert found > len(data) * 7


def test_kafkas_file_has_no_checksum_and_is_read(disk: SimulatedFileSystem) -> None:
    data = b'{"leaderId":1,"leaderEpoch":6,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    replace_file(disk, "quorum-state", data)
    assert read_quorum_state(disk, "quorum-state") == QuorumState(1, 6, None)


def test_fields_of_a_newer_writer_and_null_voters_are_read(disk: SimulatedFileSystem) -> None:
    data = b'{"leaderId":1,"leaderEpoch":5,"votedId":2,"currentVoters":null,"new":[],"data_version":0}'
    replace_file(disk, "/logs/quorum-state", data)
    assert read_quorum_state(disk, "/logs/quorum-state") == QuorumState(1, 5, 2, data_version=0)


@pytest.mark.parametrize(
    "fields",
    [
        {"leader_epoch": -1},
        {"leader_id": -1},
        {"voted_id": 2**31},
        {"data_version": 2},
        {"data_version": 0, "voted_id": 1, "voted_directory_id": UUID(int=500)},
        {"current_voters": (1,)},
        {"voted_directory_id": UUID(int=500)},
        {"voted_id": 1, "voted_directory_id": UUID(int=0)},
        {"data_version": 0, "current_voters": (1, 1)},
    ],
)
def test_a_state_that_contradicts_itself_cannot_be_made(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        QuorumState(**{"leader_id": None, "leader_epoch": 0, "voted_id": None, **fields})
