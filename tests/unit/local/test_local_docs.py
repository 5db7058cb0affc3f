"""The examples of `docs/OPEN_LOG.md` run, and its table of settings is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from replog.local import LocalLogConfig
from replog.log.recovery.cut_bytes import CUT_BYTES_MAX, CUT_FILES_MAX

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


def test_what_the_pages_say_of_damage_is_one_thing() -> None:
    """What it says is tested in `test_local_crash` and in the table of damages."""
    recovery, form = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("RECOVERY.md", "FORMAT.md"))
    assert "what was stored safely is never cut to make a start succeed" in README
    assert "exactly what was fsynced after `kill -9`" in " ".join(README.split())
    for page in (PAGE, recovery, form):
        assert "flushed-offset" in page
        assert re.search(r"exact(ly)? after kill -9", " ".join(page.split()))
    assert f"{CUT_FILES_MAX} files and {CUT_BYTES_MAX >> 20} MiB" in recovery
    assert "--accept-loss" in PAGE
    assert "--accept-loss" in recovery


def test_the_table_of_settings() -> None:
    named = re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.split("## Settings")[1].split("##")[0], re.MULTILINE)
    settings = {name: default.strip("`") for name, default in named}
    assert settings.keys() - {"file_system"} == set(LocalLogConfig.__struct_fields__)
    config = LocalLogConfig()
    for name in ("flush_interval_ms", "max_batch_bytes", "maintenance_interval_ms", "dirty_window_bytes"):
        assert settings[name] == f"{getattr(config, name):,}"
