"""The examples of `docs/OPEN_LOG.md` run, and its table of settings is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from replog.local import LocalLogConfig

PAGE = (Path(__file__).parents[3] / "docs/OPEN_LOG.md").read_text(encoding="utf-8")
README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHOWN = [
    ["0", "b'table-7' b'two coffees'", "2"],
    ["[40, 41, 42", "10", "0 100", "b'99'"],
    ["600 5"],
    ["64 appends, one batch, one fsync", "63"],
    ["1000 ['offset', 'timestamp', 'value']", "100"],
    ["[b'a']"],
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


def test_the_table_of_settings() -> None:
    named = re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.split("## Settings")[1].split("##")[0], re.MULTILINE)
    settings = {name: default.strip("`") for name, default in named}
    assert settings.keys() - {"file_system"} == LocalLogConfig.__dataclass_fields__.keys()
    config = LocalLogConfig()
    for name in ("flush_interval_ms", "max_batch_bytes", "maintenance_interval_ms", "dirty_window_bytes"):
        assert settings[name] == f"{getattr(config, name):,}"
