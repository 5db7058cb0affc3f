"""The file of `--client-config`: passwords that stand elsewhere, and that nobody reads one in an error or a warning."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path

import pytest

from replog.cli import client_config
from replog.client import Security
from replog.errors import ConfigError

CANARY = "canary-of-a-client"
LOGIN = (
    'security.protocol = "SASL_PLAINTEXT"\nsasl.mechanism = "SCRAM-SHA-512"\nsasl.username = "alice"\nsasl.password = '
)


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "client.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("reference", ["${env:CANARY_OF_TEST}", "${file:kept}", "${file:kept.properties:alice}"])
def test_a_password_may_stand_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str) -> None:
    monkeypatch.setenv("CANARY_OF_TEST", CANARY)
    for name, text in (("kept", f"{CANARY}\n"), ("kept.properties", f"alice={CANARY}\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    assert client_config.read(written(tmp_path, f'{LOGIN}"{reference}"')) == Security.scram("alice", CANARY)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LOGIN + '"${env:NOT_SET_ANYWHERE}"', "sasl.password = ${env:NOT_SET_ANYWHERE}: there is no variable"),
        (
            'security.protocol = "${env:CANARY_OF_TEST}"',
            "security.protocol = ${env:CANARY_OF_TEST}: the value is refused",
        ),
        ('"sasl.pasword" = "${env:CANARY_OF_TEST}"', "sasl.pasword = ${env:CANARY_OF_TEST}: the value is refused"),
        (LOGIN + f'["{CANARY}"]', "sasl.password is a list; it must be text"),
        (LOGIN + CANARY, "is no TOML"),
    ],
)
def test_no_error_shows_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str) -> None:
    monkeypatch.setenv("CANARY_OF_TEST", CANARY)
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as raised:
        client_config.read(path)
    assert str(path) in str(raised.value)
    assert reason in str(raised.value)
    assert CANARY not in "".join(traceback.format_exception(raised.value)) + repr(raised.value.value)


@pytest.mark.parametrize(
    ("text", "mode", "is_told"),
    [
        (f'{LOGIN}"{CANARY}"', 0o644, True),
        (f'{LOGIN}"{CANARY}"', 0o600, False),
        (LOGIN + '"${env:CANARY_OF_TEST}"', 0o644, False),
        ('security.protocol = "PLAINTEXT"', 0o644, False),
    ],
)
def test_a_file_with_a_password_that_others_may_read_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    text: str,
    mode: int,
    is_told: bool,
) -> None:
    monkeypatch.setenv("CANARY_OF_TEST", CANARY)
    path = written(tmp_path, text, mode)
    with caplog.at_level(logging.WARNING):
        client_config.read(path)
    assert (f"{path} has a password, and not only its owner may open it: chmod 600 {path}" in caplog.text) is is_told
    assert CANARY not in caplog.text
