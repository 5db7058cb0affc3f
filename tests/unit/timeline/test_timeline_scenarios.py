"""Plays `tests/data/timeline/*.txt`: commands, `----`, what they answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from replog_timeline import SnapshotRegistry, TimelineError, TimelineHashMap

SCENARIOS = sorted((Path(__file__).parents[2] / "data" / "timeline").glob("*.txt"))


class Player:
    def __init__(self) -> None:
        self.registry = SnapshotRegistry()
        self.map = TimelineHashMap[str, str](self.registry)

    def answer(self, command: str) -> str:
        try:
            return self._play(*command.split())
        except TimelineError as error:
            return str(error)

    def _play(self, name: str, *arguments: str) -> str:
        match name, *arguments:
            case "set", key, value:
                self.map[key] = value
                return ""
            case "remove", key:
                del self.map[key]
                return ""
            case "compare-and-set", key, expected, value:
                if self.map.get(key) != expected:
                    return f"refused, {key} is {self.map.get(key)}"
                self.map[key] = value
                return "applied"
            case ("show",):
                return self._show(None)
            case "show", "at", epoch:
                return self._show(int(epoch))
            case "snapshot", epoch:
                self.registry.create_snapshot(int(epoch))
            case "get-or-create", epoch:
                self.registry.get_or_create_snapshot(int(epoch))
            case "revert", epoch:
                self.registry.revert_to_snapshot(int(epoch))
            case "delete", epoch:
                self.registry.delete_snapshot(int(epoch))
            case "delete-up-to", epoch:
                self.registry.delete_snapshots_up_to(int(epoch))
            case ("reset",):
                self.registry.reset()
            case _:
                raise ValueError(f"unknown command {name} {arguments}")
        return " ".join(["epochs", *map(str, self.registry.epochs())])

    def _show(self, epoch: int | None) -> str:
        entries = sorted(f"{key}={value}" for key, value in self.map.items(epoch=epoch))
        assert len(entries) == self.map.size(epoch=epoch)
        return " ".join(entries) or "empty"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_scenario(scenario: Path) -> None:
    player = Player()
    lines = [line for line in scenario.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    steps = [step for step in "\n".join(lines).strip().split("\n\n") if step.strip()]
    assert steps
    for step in steps:
        commands, expected = step.split("\n----\n")
        answers = [player.answer(command) for command in commands.strip().split("\n")]
        assert [answer for answer in answers if answer] == expected.split("\n"), step


def test_there_are_scenarios() -> None:
    assert "worked_compare_and_set" in [path.stem for path in SCENARIOS]
