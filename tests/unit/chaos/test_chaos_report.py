"""The arithmetic and the report of `replog chaos`."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from replog.testing.history import Anomaly, AnomalyKind
from replog_chaos import report
from replog_chaos.faults import FAULTS
from replog_chaos.load import Acknowledgement
from replog_chaos.outcome import FaultOutcome, Injected, blamed, combined, percentile, unavailable_s

START_S = 100.0


def acks(partition: int, *times_s: float) -> list[Acknowledgement]:
    return [Acknowledgement(partition, offset, at_s - 0.005, at_s) for offset, at_s in enumerate(times_s)]


def outcome(*anomalies: Anomaly) -> FaultOutcome:
    acknowledged = [*acks(0, 101, 102, 105, 106), *acks(1, 101, 106)]
    injected = [
        Injected("kill-leader", (3,), 102.0, 105.0, 105.5, 3.0),
        Injected("kill-leader", (1,), 105.6, 105.7, 105.8, 1.0),
    ]
    return FaultOutcome(START_S, 9, acknowledged, {"replog: X": 1}, injected, anomalies, stored_count=2)


@pytest.mark.parametrize(
    ("began_s", "end_s", "expected_s"),
    [(102.5, 104.0, 5.0), (101.5, 101.6, 5.0), (105.1, 105.2, 5.0), (106.5, 107.0, 0.5)],
    ids=["within", "the other partition", "its end", "nothing more came"],
)
def test_the_longest_silence_of_one_partition(began_s: float, end_s: float, expected_s: float) -> None:
    acknowledged = [*acks(0, 101, 102, 105, 106), *acks(1, 101, 106)]
    assert unavailable_s(acknowledged, 2, began_s, end_s) == pytest.approx(expected_s)


def test_percentiles_are_values_that_were_seen() -> None:
    values = [1.0, 2.0, 3.0, 4.0]
    assert [percentile(values, p) for p in (0, 50, 99, 100)] == [1.0, 3.0, 4.0, 4.0]
    assert percentile([7.0], 50) == 7.0


def test_what_is_lost_is_counted_and_named() -> None:
    lost = Anomaly(AnomalyKind.UNSEEN, ("chaos", 0), 4, "value <4>")
    twice = Anomaly(AnomalyKind.DUPLICATE, ("chaos", 1), 5, "value 5")
    skipped = Anomaly(AnomalyKind.POLL_SKIP, ("chaos", 1), 6, "value 6")
    one = outcome(lost, twice, skipped)
    assert (one.lost_count, one.duplicated_count, dict(one.other_anomalies)) == (1, 1, {"poll_skip": 1})
    assert report.sentence(one) == "3 anomalies, 1 of them lost records."
    assert "value &lt;4&gt;" in report.as_html(one)
    assert json.loads(report.as_json(one))["lost"] == 1


@pytest.mark.parametrize(
    ("offset", "fault"), [(0, 0), (1, 0), (2, 0), (3, None), (9, None)],
    ids=["before the first", "as it began", "in its course", "after the last", "never acknowledged"],
)  # fmt: skip
def test_what_is_lost_counts_for_the_fault_that_was_not_over(offset: int, fault: int | None) -> None:
    one = outcome()
    anomalies = [
        Anomaly(AnomalyKind.UNSEEN, ("chaos", 0), offset, ""),
        Anomaly(AnomalyKind.UNSEEN, ("other", 0), 0, ""),
    ]
    found = blamed(one.injected, one.acknowledged, anomalies, "chaos")
    assert [injected.lost_count for injected in found] == [int(number == fault) for number in range(2)]
    twice = [Anomaly(AnomalyKind.DUPLICATE, ("chaos", 0), offset, "")]
    found = blamed(one.injected, one.acknowledged, twice, "chaos")
    assert [injected.duplicated_count for injected in found] == [int(number == fault) for number in range(2)]


def test_the_report(tmp_path: Path) -> None:
    page, data = report.write(outcome(), tmp_path / "chaos.html")
    found = json.loads(data.read_text())
    assert found["faults"] == [
        {
            "name": "kill-leader", "count": 2, "acknowledged": 2, "lost": 0, "duplicated": 0,
            "unavailable_s": {"p50": 1.0, "p99": 3.0, "max": 3.0},
        }
    ]  # fmt: skip
    assert (found["sent"], found["acknowledged"], found["acknowledged_without_offset"], found["unknown"]) == (
        9,
        6,
        2,
        1,
    )
    assert found["events"][0] == {
        "name": "kill-leader", "nodes": [3], "began_s": 2.0, "flowing_s": 5.0, "settled_s": 5.5, "unavailable_s": 3.0,
        "lost_count": 0, "duplicated_count": 0, "acknowledged": 2,
    }  # fmt: skip
    text = page.read_text()
    assert "2 faults, no acknowledged record lost, none twice." in text
    assert "http" not in text, "nothing comes from elsewhere"
    svg = ET.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    assert len(svg.findall("rect")) == 4
    assert len(svg.findall("circle")) == len(found["latency"]) == 4


def test_what_was_skipped_is_named_with_its_reason() -> None:
    one = combined([outcome(), outcome()], {"power-cut": "mounting needs <root>"}, "namespaces", "tcp")
    assert report.sentence(one) == "4 faults, 1 skipped, no acknowledged record lost, none twice."
    assert json.loads(report.as_json(one))["skipped"] == {"power-cut": "mounting needs <root>"}
    assert "power-cut: mounting needs &lt;root&gt;" in report.as_html(one)
    assert (one.sent_count, one.unknown_count, len(one.acknowledged), one.stored_count) == (18, 2, 12, 4)


def test_a_run_in_which_everything_was_skipped() -> None:
    one = combined([], {"power-cut": "mounting needs root"}, "proxies", "grpc")
    assert json.loads(report.as_json(one))["events"] == []
    assert "0 faults, 1 skipped" in report.as_html(one)


def test_every_fault_says_what_it_is() -> None:
    assert all(fault.text for fault in FAULTS.values())
