"""The users that a new cluster begins with: as they are named, as they stand on disk, and that they are there after restarts."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from replog.access.credentials import ScramMechanism
from replog.access.scram import credential_of, salted_password
from replog.broker.node.first_users import FILE_NAME, read_first_users, write_first_users
from replog.cli.commands.storage import first_user
from replog.cli.errors import UsageError
from replog.controller.requests import AlterableScramCredential, AlterUserScramCredentials
from replog.errors import CorruptCheckpointError
from replog.testing import SimulatedFileSystem
from replog_checkpoints import OsFileSystem
from tests.envelopes import CLIENT, sender
from tests.unit.kafka.kafka_node_kit import serving

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_a_user_is_named_as_kafka_storage_has_it() -> None:
    user = first_user('SCRAM-SHA-512=[name="alice",iterations=8192,salt="N3E=",password=pa=ss]')
    salt = base64.b64decode("N3E=")
    made = credential_of(SHA_512, salted_password(SHA_512, b"pa=ss", salt, 8192), salt, 8192)
    assert (user.name, user.mechanism, user.credential) == ("alice", SHA_512, made)
    salted = salted_password(SHA_256, b"pw", salt, 4096)
    other = first_user(f"SCRAM-SHA-256=[name=bob,salt=N3E=,saltedpassword={b64(salted)}]")
    assert other.credential == credential_of(SHA_256, salted, salt, 4096)
    assert first_user("SCRAM-SHA-256=[name=a,password=p]") != first_user("SCRAM-SHA-256=[name=a,password=p]")


@pytest.mark.parametrize(
    "text",
    [
        "canary", "PLAIN=[name=a,password=canary]", "SCRAM-SHA-256=name=a,password=canary", "SCRAM-SHA-256=[password=canary]",
        "SCRAM-SHA-256=[name=,password=canary]", "SCRAM-SHA-256=[name=a]", "SCRAM-SHA-256=[name=a,password=]",
        "SCRAM-SHA-256=[name=a,password=canary,password=canary]", "SCRAM-SHA-256=[name=a,password=canary,iterations=4095]",
        "SCRAM-SHA-256=[name=a,password=canary,iterations=16385]", "SCRAM-SHA-256=[name=a,password=canary,iterations=many]",
        "SCRAM-SHA-256=[name=a,password=canary,salt=!]", "SCRAM-SHA-256=[name=a,saltedpassword=N3E=]",
        "SCRAM-SHA-256=[name=a,salt=N3E=,saltedpassword=N3E=]", "SCRAM-SHA-256=[name=a,password=canary,colour=red]",
        "SCRAM-SHA-256=[name=a,password=canary,salt=N3E=,saltedpassword=N3E=]",
    ],
)  # fmt: skip
def test_what_names_no_user_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(UsageError, match="--add-scram") as raised:
        first_user(text)
    assert "canary" not in str(raised.value)


def test_the_file_gives_them_again_and_damage_is_refused(tmp_path: Path) -> None:
    fs, path = OsFileSystem(), tmp_path / FILE_NAME
    assert read_first_users(fs, str(tmp_path)) == ()
    users = tuple(first_user(f"SCRAM-SHA-256=[name=user-{number},password=p]") for number in range(3))
    write_first_users(fs, str(tmp_path), users)
    assert read_first_users(fs, str(tmp_path)) == users
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(CorruptCheckpointError):
            read_first_users(fs, str(tmp_path))
    path.write_bytes(whole[:-1])
    with pytest.raises(CorruptCheckpointError, match=FILE_NAME):
        read_first_users(fs, str(tmp_path))


async def test_a_new_cluster_has_them_and_keeps_them() -> None:
    """Goal: they come once: who is removed does not come back with the next start."""
    fs, user = SimulatedFileSystem(), first_user("SCRAM-SHA-256=[name=alice,password=pw]")
    fs.make_dirs("/data")
    write_first_users(fs, "/data", [user, first_user("SCRAM-SHA-512=[name=bob,password=pw]")])
    async with serving(fs) as it:
        assert it.kafka.image.scram_credentials["alice", SHA_256] == user.credential
        await it.kafka.change(
            AlterUserScramCredentials((AlterableScramCredential("bob", SHA_512),)), 5000, sender(CLIENT)
        )
        await it.until(lambda: len(it.kafka.image.scram_credentials) == 1)
    async with serving(fs) as it:
        assert dict(it.kafka.image.scram_credentials) == {("alice", SHA_256): user.credential}
