"""The table of what simulations find: made, put into the page, and read back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.sim import (
    ablation_table,
    group_ablations,
    kafka_ablations,
    quorum_ablations,
    replication_ablations,
    transaction_ablations,
)
from tests.sim.ablation_table import AblationTable, Found, taken_out

TEXT = "before\n<!-- toy ablations: begin -->\nold\n<!-- toy ablations: end -->\nafter\n"


@dataclass(frozen=True)
class Toy:
    safeguard: str
    seed: int = 0
    unfound_because: str = ""


def find(toy: Toy, first: int, count: int) -> Found:
    return (toy.seed, f"X1 it is\nmissed [seed {toy.seed}, ...]") if first <= toy.seed < first + count else None


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    page = tmp_path / "page.md"
    page.write_text(TEXT)
    monkeypatch.setattr(ablation_table, "PAGE", page)
    return page


# a process of pytest-xdist is
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_what_is_written_is_what_is_known(page: Path) -> None:
    toys = Toy("a lock"), Toy("a (second) lock", 7), Toy("late", 10), Toy("luck", 1, "it helps nobody")
    table = AblationTable("toy", toys, find, seeds_max=10)
    table.write(table.make(toys, processes=2))
    assert page.read_text() == TEXT.replace(
        "old\n",
        "| without | seeds to find | found as |\n"
        "|---|---|---|\n"
        "| a lock | 1 | X1 it is missed |\n"
        "| a (second) lock | 8 | X1 it is missed |\n"
        "| late | not found | - |\n"
        "| luck | not found | it helps nobody |\n",
    )
    assert (table.known_seed("a lock"), table.known_seed("a (second) lock")) == (0, 7)
    with pytest.raises(LookupError, match=r"late: no seed is known\. Run python -m tests\.sim\.toy_ablations --write"):
        table.known_seed("late")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("stale", [True, False])
def test_only_rows_that_are_stale_are_made_anew(stale: bool, page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logging.disable", lambda _: None)  # of this process
    monkeypatch.setattr("sys.argv", ["toy", "--stale", "--write", "--processes", "1"])
    rows = f"| a lock | {3 if stale else 8} | as before |\n| gone | 1 | X9 |\n| other | 1 | as before |\n"
    page.write_text(TEXT.replace("old\n", rows))
    assert AblationTable("toy", [Toy("a lock", 7), Toy("other")], find, seeds_max=10).main("") == 0
    lock = "| a lock | 8 | X1 it is missed |\n" if stale else "| a lock | 8 | as before |\n"
    assert page.read_text() == TEXT.replace("old\n", ablation_table.HEAD + lock + "| other | 1 | as before |\n")


@pytest.mark.parametrize("seed", [3, 4])
def test_one_is_looked_for(seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("logging.disable", lambda _: None)  # of this process
    monkeypatch.setattr("sys.argv", ["toy", "--only", "lock", "--first", "2", "--seeds", "2"])
    assert AblationTable("toy", [Toy("a lock", seed), Toy("other")], find, seeds_max=10).main("") == 0
    assert capsys.readouterr().out.startswith("a lock (3, 'X1" if seed == 3 else "a lock None\n")


@pytest.mark.parametrize("known", [7, 3])
def test_a_seed_that_shows_nothing_any_more_is_told_and_others_are_looked_at(page: Path, known: int) -> None:
    page.write_text(TEXT.replace("old", f"| a lock | {known + 1} | X1 |"))
    stale: list[str] = []
    found = AblationTable("toy", [Toy("a lock", 7)], find, seeds_max=10).find_again(Toy("a lock", 7), stale.append)
    assert found is not None
    assert found[0] == 7
    assert len(stale) == (known != 7)


@pytest.mark.parametrize(
    "module",
    [group_ablations, kafka_ablations, quorum_ablations, replication_ablations, transaction_ablations],
    ids=lambda each: each.TABLE.name,
)
def test_each_safeguard_is_where_its_substitute_takes_it_out(module: Any) -> None:
    """What a simulation finds without it is proven in campaigns: a name that is gone is to be seen at once."""
    for ablation in module.ABLATIONS:
        with taken_out(ablation.patches):
            assert all(getattr(owner, name) is not None for owner, name, _ in ablation.patches)
        assert ablation.unfound_because or module.TABLE.known_seed(ablation.safeguard) >= 0
