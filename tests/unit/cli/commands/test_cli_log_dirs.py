"""What `log-dirs describe` says."""

from __future__ import annotations

from replog.cli.commands.log_dirs import lines
from replog.rpc.node_messages import LogDir, LogDirReplica, ReplicaMoveStatus


def test_a_directory_with_its_replicas_and_what_moves_to_it() -> None:
    replicas = (LogDirReplica("flights", 0, 1_500), LogDirReplica("flights", 1, -1))
    moves = (ReplicaMoveStatus("trains", 2, "/b", 250, 750), ReplicaMoveStatus("trains", 3, "/b", 0, -1))
    assert list(lines(3, LogDir("/b", "", 2_000_000, replicas, moves))) == [
        "broker 3: /b: 2 replicas, 1.5 kB, 2.0 MB free",
        "  flights-0: 1.5 kB",
        "  flights-1: offline",
        "  trains-2 moves here: 250 B of 1.0 kB (25 %) copied",
        "  trains-3 moves here: waits",
    ]


def test_a_directory_that_is_offline() -> None:
    assert list(lines(3, LogDir("/b", "burnt", -1, (), ()))) == ["broker 3: /b is offline: burnt"]
