"""Delegation tokens by the command line, at real nodes: over a kill, a snapshot and another controller, and shown to nobody else."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
from pathlib import Path

import pytest

from replog.access.token_key import TokenKey, token_password
from replog.client import Admin, Security, SyncAdmin
from replog.client.protocol.questions.delegation_tokens import HeldToken
from replog.cluster import LocalCluster
from replog.errors import DelegationTokenNotFoundError, SaslAuthenticationError
from tests.cluster.cli_runs import PATIENCE_S, replog
from tests.cluster.test_cluster_users import FIRST, by_command, running
from tests.kafka.served_cluster import QUICK
from tests.kafka.waiting import until

KEY = "canary-key-of-tokens"
CONFIG = """\
"node.id" = 1
"log.dirs" = ["{data}"]
"listeners" = ["SASL_PLAINTEXT://127.0.0.1:0"]
"delegation.token.secret.key" = "{key}"
"metadata.log.max.record.bytes.between.snapshots" = 1024
"""


def logs_in(address: str, token_id: str, token_hmac: str) -> bool:
    try:
        with SyncAdmin(address, security=Security.delegation_token(token_id, token_hmac)) as admin:
            admin.list_topics()
    except SaslAuthenticationError:
        return False
    return True


def test_a_token_outlives_a_kill_and_nobody_is_shown_what_proves_it(tmp_path: Path) -> None:
    config, data = tmp_path / "server.toml", tmp_path / "data"
    config.write_text(CONFIG.format(data=data, key=KEY))
    assert replog("storage", "format", "--config", config, "--add-scram", "-", stdin=f"{FIRST}\n").status == 0
    with running(config) as (address, process):
        made = by_command(tmp_path, address, "tokens", "create", "--renewer", "bob")
        token = json.loads(made.out)
        token_id, token_hmac = token["token_id"], token["hmac"]
        assert (token["owner"], token["requester"], token["renewers"]) == ("alice", "alice", ["bob"])
        assert token_hmac == token_password(TokenKey(KEY).hmac_of(token_id))
        until(lambda: logs_in(address, token_id, token_hmac))
        for name in range(30):  # bytes for a snapshot
            added = by_command(
                tmp_path, address, "users", "add", f"user-{name}", "--password-file", "-", stdin="canary-pw\n"
            )
            assert added.status == 0, added
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
    assert list((data / "__cluster_metadata-0").glob("*.checkpoint")), "there is a snapshot"
    with running(config) as (address, process):
        until(lambda: logs_in(address, token_id, token_hmac))
        shown = [
            by_command(tmp_path, address, "tokens", "list").out,
            by_command(tmp_path, address, "tokens", "list", "--json").out,
            by_command(tmp_path, address, "tokens", "renew", token_id).out,
            by_command(tmp_path, address, "configs", "describe", "--node", 1).out,
        ]
        assert all(token_id in text for text in shown[:3]), shown
        assert "delegation.token.secret.key" in shown[3]
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    dumped = replog("log", "dump", data / "__cluster_metadata-0", "--deep", "--json").out
    assert "DelegationTokenRecord" in dumped
    for text in (*shown, dumped):
        assert token_hmac not in text
        assert KEY not in text
    secrets = (KEY.encode(), token_hmac.encode(), base64.b64decode(token_hmac))
    for file in data.rglob("*"):
        assert file.is_dir() or not any(secret in file.read_bytes() for secret in secrets), file
    with running(config) as (address, process):
        assert by_command(tmp_path, address, "tokens", "expire", token_id).out == f"token {token_id} is expired\n"
        until(lambda: not logs_in(address, token_id, token_hmac))
        again = by_command(tmp_path, address, "tokens", "renew", token_id)
        assert again.status == 1
        assert "there is no delegation token" in again.err


async def test_another_controller_renews_and_ends_the_tokens_of_the_last(tmp_path: Path) -> None:
    config = {**QUICK, "delegation.token.secret.key": KEY}
    cluster = await LocalCluster.start(tmp_path / "cluster", nodes=3, config=config, secure=True)
    async with (
        cluster,
        Admin(cluster.bootstrap_servers, security=cluster.security) as admin,
        asyncio.timeout(PATIENCE_S),
    ):
        held: HeldToken = await admin.create_delegation_token()
        before = (await admin.describe_cluster()).controller_id
        await cluster.kill(before)
        later_ms = await admin.renew_delegation_token(held.hmac)
        assert later_ms >= held.token.expiry_timestamp_ms
        assert (await admin.describe_cluster()).controller_id != before
        await admin.expire_delegation_token(held.hmac)
        with pytest.raises(DelegationTokenNotFoundError):
            await admin.renew_delegation_token(held.hmac)
