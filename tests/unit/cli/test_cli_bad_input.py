"""What no broker need be asked about: one line, status 2, and never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Replog

BIG = 2**63
PLAN = '{"version": 1, "partitions": [{"topic": "t", "partition": %s, "replicas": [%s]}]}'

WRONG = [
    ("topics create t --partitions", BIG),
    ("topics create t --replication-factor", BIG),
    ("topics create t --assign", ""),
    ("topics create t --assign", "1,,2"),
    ("topics create t --assign", "1:²"),
    ("topics create t --assign", f"1:{BIG}"),
    ("topics create t --partitions 1 --assign", "1"),
    ("topics alter t --partitions", BIG),
    ("topics delete-records", f"t-0={BIG}"),
    ("topics delete-records", f"t-{BIG}=1"),
    ("topics delete-records", "t-0=²"),
    ("topics elect-leaders --partition", 3),
    ("topics elect-leaders --topic t --partition", BIG),
    ("topics reassign --generate --brokers", BIG),
    ("topics reassign --generate --brokers", "-1"),
    ("brokers drain", BIG),
    ("brokers unregister", BIG),
    ("configs get --broker", BIG),
    ("configs set a=1 --broker", BIG),
    ("quorum add-voter", BIG),
    ("quorum remove-voter", BIG),
    ("log-dirs describe --broker", BIG),
    ("log-dirs move t 0 --to /d --broker", BIG),
    (f"log-dirs move t {BIG} --to /d --broker", 1),
    ("partition describe", f"t-{BIG}"),
    ("produce t --partition", -1),
    ("produce t --partition", BIG),
    ("consume t --partition", -1),
    ("consume t --from", BIG),
    ("consume t --timeout", 0),
    ("cluster start --dir c --port", 65_536),
    ("cluster start --dir c --nodes", 0),
    ("cluster status --dir", "no-such"),
    ("status --dir", "no-such"),
    ("metadata shell ls --dir", "no-such"),
]


@pytest.mark.parametrize(("command", "value"), WRONG)
def test_a_value_that_cannot_be_right(
    replog: Replog, command: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = replog(*command.split(), value)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "1", '{"partitions": 1}', PLAN % (0, '"x"'), PLAN % (BIG, 1), PLAN % (0, BIG), PLAN % (-1, 1)],
)
@pytest.mark.parametrize("action", ["--execute", "--verify", "--cancel"])
def test_a_plan_that_is_none(replog: Replog, action: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    done = replog("topics", "reassign", action, tmp_path / "plan.json")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"error: {tmp_path}/plan.json ")
    assert done.err.count("\n") == 1
