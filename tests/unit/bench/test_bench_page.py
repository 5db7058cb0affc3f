"""The page of results: charts that show what was measured, in one file that needs nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bench import cli, harness, report
from bench.model import Row, Trace
from bench.page import charts, document, results

ENVIRONMENT = {"commit": "abc", "processor": "<cpu & more>", "cpus": 2, "python": "CPython 3.11"}


def row(system: str, metric: str, median: float, unit: str = "1/s", **params: int) -> Row:
    return Row("fake", system, metric, unit, params, median, median * 0.9, median * 1.1, 3)


def written(
    path: Path, rows: list[Row], traces: list[Trace] | None = None, missing: dict[str, str] | None = None
) -> Path:
    durability = {each.system: "acks=all" for each in rows}
    report.write_json(path, harness.Result(rows, missing or {}, durability, traces or []), ENVIRONMENT)
    return path


def drawings(page: str) -> list[ET.Element]:
    """Every chart, parsed: a tag that is not closed or a character that is not escaped would show."""
    return [ET.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def shapes(drawing: ET.Element, kind: str, css: str) -> list[dict[str, str]]:
    return [each.attrib for each in drawing.iter(kind) if css in each.attrib.get("class", "").split()]


def made(tmp_path: Path, *rows: Row, **more: Any) -> str:
    run = results.read(written(tmp_path / "run.json", list(rows), **more))
    return document.page([run], {"fake": "How fast is <it>?"})


def test_a_bar_is_as_long_as_its_median(tmp_path: Path) -> None:
    rows = [row("replog", "records_per_s", 300), row("kafka", "records_per_s", 100), row("other", "records_per_s", 0)]
    (drawing,) = drawings(made(tmp_path, *rows))
    ours, theirs, none = (float(shapes(drawing, "rect", name)[0]["width"]) for name in ("replog", "kafka", "other"))
    assert ours == pytest.approx(3 * theirs, abs=0.02)
    assert none == 0
    found = {each.text for each in drawing.iter("text")}
    assert {"replog", "300 1/s, 3 × kafka", "kafka", "100 1/s", "0 1/s, 0 × kafka"} <= found


def test_latencies_stand_on_a_logarithmic_scale(tmp_path: Path) -> None:
    values = {"ack_p50_ms": 1.0, "ack_p99_ms": 10.0, "ack_max_ms": 100.0}
    rows = [row("kafka", metric, value, "ms") for metric, value in values.items()]
    (drawing,) = drawings(made(tmp_path, *rows))
    p50, p99 = (float(dot["cx"]) for dot in shapes(drawing, "circle", "kafka"))
    top = max(float(each["x2"]) for each in shapes(drawing, "line", "kafka"))
    assert p99 - p50 == pytest.approx(top - p99, abs=0.2)
    assert {"1 ms", "10 ms", "100 ms"} <= {each.text for each in drawing.iter("text")}


def test_the_timeline_is_empty_where_no_acknowledgement_came(tmp_path: Path) -> None:
    trace = Trace("fake", "replog-java", {}, -1.0, 0.5, [4, 5, 0, 0, 0, 2])
    rows = [row("replog-java", "longest_ack_gap_ms", 1500, "ms")]
    _, drawing = drawings(made(tmp_path, *rows, traces=[trace]))
    before, after = shapes(drawing, "rect", "replog")
    (kill,) = shapes(drawing, "line", "kill")
    whole = float(shapes(drawing, "rect", "gap")[0]["width"])
    assert float(before["width"]) == pytest.approx(whole * 2 / 6, abs=0.1)
    assert float(after["x"]) - float(kill["x1"]) == pytest.approx(whole * 3 / 6, abs=0.2)


def test_each_case_has_its_chart_and_the_first_metric_where_none_is_known(tmp_path: Path) -> None:
    page = made(tmp_path, *(row("replog", "sparkles", size, "1", size=size) for size in (1, 2)))
    assert [drawing.attrib["aria-label"] for drawing in drawings(page)] == ["sparkles"] * 2
    assert page.index("<h3>size=1</h3>") < page.index("<h3>size=2</h3>")


def test_who_was_left_out_and_what_an_acknowledgement_meant_are_on_the_page(tmp_path: Path) -> None:
    page = made(tmp_path, row("replog", "records_per_s", 1), missing={"kafka": "there is no 'java' on the PATH"})
    assert "Left out: kafka: there is no &#x27;java&#x27; on the PATH." in page
    assert "Acknowledged by replog: acks=all." in page
    assert "&lt;cpu &amp; more&gt;" in page
    assert "How fast is &lt;it&gt;?" in page


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    page = made(tmp_path, row("replog", "records_per_s", 1))
    for loads in ("<script", "src=", "href=", "url(", "@import", "http"):
        assert loads not in page


@pytest.mark.parametrize(("first_s", "last_s"), [(-1.0, 1.2), (-1.0, 14.0), (-0.3, 0.31), (-1.0, 0.0)])
def test_ticks_are_few_round_and_inside(first_s: float, last_s: float) -> None:
    found = charts._ticks(first_s, last_s)
    assert 2 <= len(found) <= charts.TICKS_MAX + 1
    assert first_s <= found[0] < found[-1] <= last_s
    assert 0 in found


def test_the_command_writes_the_page_of_all_files_in_their_order(tmp_path: Path) -> None:
    one = written(tmp_path / "one.json", [row("replog", "records_per_s", 1)])
    two = written(tmp_path / "two.json", [row("kafka", "records_per_s", 2)])
    output = tmp_path / "page.html"
    assert cli.main(["page", str(two), str(one), "-o", str(output)]) == 0
    page = output.read_text(encoding="utf-8")
    assert page.count("<h2>fake</h2>") == 2
    assert page.index("2 1/s") < page.index("1 1/s")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not what"),
        ("[]", "not what"),
        ('{"rows": [{"scenario": "x"}]}', "not what"),
        (json.dumps({"rows": [], "environment": {}, "missing": {}}), "nothing was measured"),
        (None, "No such file"),
    ],
)
def test_a_file_that_holds_no_result_is_refused(
    content: str | None, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    assert cli.main(["page", str(path), "-o", str(tmp_path / "page.html")]) == 2
    error = capsys.readouterr().err.replace("\n", "").replace(" ", "")
    assert says.replace(" ", "") in error
    assert "x.json" in error
    assert not (tmp_path / "page.html").exists()


def test_a_wish_for_a_case_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "produce", "--only", "record_bytes=7"]) == 2
    assert "record_bytes=1024" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["run", "produce", "--only", "record_bytes"])
    assert "is not NAME=VALUE" in capsys.readouterr().err
