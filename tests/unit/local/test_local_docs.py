"""The examples of `docs/OPEN_LOG.md` run; its table of settings: `tests/lint/open_log_page.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/OPEN_LOG.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHOWN = [
    ["0", "b'table-7' b'two coffees'", "2"],
    ["[40, 41, 42", "10", "0 100", "b'99'"],
    ["600 5"],
    ["64 appends, one batch, one fsync", "63"],
    ["1000 ['offset', 'timestamp', 'value']", "100"],
    ["[b'a']"],
    ["2 is the next offset"],
]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(EXAMPLES[number], f"OPEN_LOG.md example {number}", "exec"), {"__name__": "__main__"})
    shown = capsys.readouterr().out
    for text in SHOWN[number]:
        assert text in shown


def test_every_example_is_checked() -> None:
    assert len(EXAMPLES) == len(SHOWN)


def test_the_example_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = [text for text in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "open_log" in text]
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})
    assert "two coffees" in capsys.readouterr().out
