"""`replog chaos run`, as a user types it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_runs import replog

pytestmark = pytest.mark.cluster


def test_a_leader_is_killed_and_every_record_accounted_for(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = replog("chaos", "run", "--faults", "kill-leader,kill-all", "--rate", 100, "--report", page)
    assert (done.status, done.err) == (0, ""), done
    assert "2 faults, no acknowledged record lost, none twice." in done.out
    found = json.loads(page.with_suffix(".json").read_text())
    assert found["acknowledged"] == found["sent"] > 100
    assert (found["unknown"], found["lost"], found["anomalies"]) == (0, 0, [])
    assert [event["name"] for event in found["events"]] == ["kill-leader", "kill-all"]
    assert all(event["unavailable_s"] > 0 for event in found["events"])
    assert "<svg" in page.read_text()


def test_wrong_faults_are_named() -> None:
    done = replog("chaos", "run", "--faults", "kill-everybody")
    assert done.status == 2
    assert 'there is no "kill-everybody"; there are kill-leader' in done.err
    assert "SIGSTOP" in replog("chaos", "list").out
    done = replog("chaos", "run", "--links", "wires")
    assert (done.status, "--links is proxies or namespaces, not wires" in done.err) == (2, True), done
    done = replog("chaos", "run", "--transport", "udp")
    assert (done.status, "--transport is grpc or tcp, not udp" in done.err) == (2, True), done


def test_what_this_machine_lacks_is_skipped_with_the_reason(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = replog("chaos", "run", "--faults", "fsync-error", "--report", page, env={"PATH": str(tmp_path)})
    assert (done.status, done.err) == (0, ""), done
    assert "fsync-error: skipped: no strace here" in done.out
    assert "0 faults, 1 skipped" in done.out
    assert json.loads(page.with_suffix(".json").read_text())["skipped"] == {"fsync-error": "no strace here"}


def test_without_namespaces_no_link_is_cut_by_other_means(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    arguments = ("--links", "namespaces", "--faults", "cut-pair", "--report", page)
    done = replog("chaos", "run", *arguments, env={"PATH": str(tmp_path)})
    assert (done.status, done.err) == (0, ""), done
    found = json.loads(page.with_suffix(".json").read_text())
    assert (found["links"], found["events"]) == ("namespaces", [])
    assert found["skipped"]["cut-pair"] in {"no ip here", "network namespaces need root"}


def test_nodes_meet_over_tcp_where_it_is_asked_for(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    arguments = ("--transport", "tcp", "--faults", "kill-leader,mute-leader", "--rate", 100, "--report", page)
    done = replog("chaos", "run", *arguments)
    assert (done.status, done.err) == (0, ""), done
    found = json.loads(page.with_suffix(".json").read_text())
    assert (found["transport"], found["lost"], found["anomalies"]) == ("tcp", 0, [])
    assert [event["name"] for event in found["events"]] == ["kill-leader", "mute-leader"]


def test_librdkafka_is_promised_and_reads_the_same(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = replog("chaos", "run", "--kafka", "--faults", "kill-leader", "--rate", 100, "--report", page)
    assert (done.status, done.err) == (0, ""), done
    found = json.loads(page.with_suffix(".json").read_text())
    by_client = found["acknowledged_by_client"]
    assert set(by_client) == {"replog", "librdkafka"}
    assert min(by_client.values()) > 100
    assert sum(by_client.values()) == found["acknowledged"]
    assert found["acknowledged"] + found["acknowledged_without_offset"] == found["sent"]
    assert (found["lost"], found["duplicated"], found["anomalies"]) == (0, 0, [])


def test_members_of_a_group_are_stopped_and_killed_and_every_record_handled() -> None:
    done = replog("chaos", "groups", "--restarts", 2, "--rate", 100)
    assert (done.status, done.err) == (0, ""), done
    assert re.search(r"^1: member stopped: settled within [\d.]+ s, handled twice 0$", done.out, re.MULTILINE), done
    assert re.search(r"^2 restarts, \d+ records acknowledged, 0 not handled\.$", done.out, re.MULTILINE), done
    assert re.search(r"^member killed +1 times, handled twice \d+ in all", done.out, re.MULTILINE), done


def test_members_that_there_are_not_are_named() -> None:
    done = replog("chaos", "groups", "--members", "sarama")
    assert (done.status, 'there is no "sarama"; there are replog, confluent' in done.err) == (2, True), done
