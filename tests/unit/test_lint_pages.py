"""The rules of `python -m tests.lint` that compare pages and tables with the code find a violation that is put before them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from replog.config.docs import field_meanings
from replog.log.state import LogState
from tests.lint import (
    configuration_page,
    error_names,
    log_state,
    named_files,
    open_log_page,
    page_commands,
    page_examples,
    parts_of_tests,
    sync_clients,
)
from tests.run_report import Budgets


@pytest.mark.parametrize(
    "line",
    [
        "state.log_end_offset = 7",
        "offset, self._state.recovery_point = 3, 4",
        "self._state.name_changes += 1",
        "state.segments.append(active)",
        "self._state.epochs.clear()",
    ],
)
def test_a_change_of_a_logs_state_is_found(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / log_state.ROOM / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text(f"\n{line}\n")
    monkeypatch.setattr(log_state, "ROOT", tmp_path)
    (found,) = log_state.violations()
    assert found.startswith(f"replog/log/module.py:2: {ast.unparse(ast.parse(line))!r}")


def test_the_names_of_a_logs_state_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogState, "__slots__", tuple({*LogState.__slots__} - {"epochs"}))
    assert list(log_state.violations()) == ["LogState has no epochs: correct this rule"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`replog topics list --json`", []),
        ("```\nreplog topic create flights\n```", ["topic"]),
        ("```sh\n$ cd\nreplog topics list --colour > file\n```", ["--colour"]),
        ("`replog topics ...`, not `the replog`", []),
        ("`replog --client-config FILE topics list`", []),
        ("`replog --client-config FILE topic list`", ["topic"]),
    ],
)
def test_commands_that_are_not_there_are_found(text: str, wrong: list[str]) -> None:
    (line,) = page_commands.commands_in(text)
    assert page_commands.wrong_in(line) == wrong


def test_pages_without_their_commands_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/OPERATIONS.md").write_text(
        "## Commands in scripts\n\n| 0 | fine |\n| 7 | odd |\n\n## More\n| 8 |\n"
    )
    (tmp_path / "README.md").write_text("`replog nonsense`\n")
    monkeypatch.setattr(page_commands, "ROOT", tmp_path)
    assert list(page_commands.violations()) == [
        "the pages name 1 commands: this rule does not find them",
        "README.md: 'replog nonsense' has no nonsense",
        "docs/OPERATIONS.md: the exit statuses are [0, 1, 2, 130, 141], not [0, 7]",
    ]


def test_errors_that_nobody_can_import_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "README.md").write_text("`NoOffsetError`, `OSError`, `ReplyError`, `NoSuchError`, `NoSuchError.code`\n")
    monkeypatch.setattr(error_names, "ROOT", tmp_path)
    assert list(error_names.violations()) == ["README.md: replog.errors has no NoSuchError"]


def test_python_of_pages_that_nobody_runs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = "quorum = Quorum(node=1)\nQuorums()\n"
    for name, text in (("A", "1 +\n"), ("B", "await one\n"), ("Q", calls)):
        (tmp_path / f"{name}.md").write_text(f"```python\n{text}```\n")
    (tmp_path / "C.md").write_text("nothing\n")
    (tmp_path / "test_it.py").write_text("runs B.md\n")
    monkeypatch.setattr(page_examples, "ROOT", tmp_path)
    monkeypatch.setattr(page_examples, "FOLDERS", (".",))
    monkeypatch.setattr(page_examples, "RUN_BY", {"B.md": "test_it.py", "C.md": "test_it.py"})
    monkeypatch.setattr(page_examples, "QUORUM", "Q.md")
    found = list(page_examples.violations())
    assert found[:3] == [
        "A.md: no test runs its Python",
        "C.md: has no Python, take it out of this rule",
        "test_it.py: does not name C.md, whose Python it shall run",
    ]
    assert found[3].startswith("A.md: a block is no Python: invalid syntax")
    assert found[4] == "Q.md: replog_quorum has no Quorums"
    assert found[5].startswith("Q.md: Quorum: ")
    assert len(found) == 6


def test_folders_that_no_part_of_the_tests_runs_are_found() -> None:
    recipes = (
        'test-quick:\n\tpytest -m "not exhaustive" tests/unit\n\n'
        "test-exhaustive:\n\tpytest -m exhaustive tests/unit\n\n"
        "test-sim:\n\tpytest tests/sim tests/unit tests/gone\n"
    )
    assert list(parts_of_tests.of_the_makefile(recipes, {"tests/unit", "tests/sim", "tests/new"})) == [
        "Makefile: tests/new is in no part of make test",
        "Makefile: tests/gone has no tests",
        "Makefile: tests/unit is in two parts",
    ]
    unmarked = recipes.replace("-m exhaustive ", "")
    (found, *_) = parts_of_tests.of_the_makefile(unmarked, {"tests/unit", "tests/sim"})
    assert found.startswith("Makefile: tests/unit is run with the marks ['not exhaustive']")


def test_what_would_be_started_twice_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "kafka/test_kafka_tools": "def test_it(kafka: KafkaInstall) -> None: ...",
        "kafka/test_it": "def test_it(kafka: KafkaInstall) -> None: ...",
        "sim/test_long": "mark.exhaustive",
    }
    for name, text in files.items():
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / f"{name}.py").write_text(text)
    (tmp_path / "Makefile").touch()
    monkeypatch.setattr(parts_of_tests, "ROOT", tmp_path)
    monkeypatch.setattr(parts_of_tests, "ON_REQUEST", ())
    found = list(parts_of_tests.violations())
    assert "tests/sim/test_long.py: is marked exhaustive, which is for tests/unit" in found
    started = [line for line in found if "one JVM for Kafka's programs is started in 2 units, not in one" in line]
    assert len(started) == 1
    assert "tests/side_by_side.py: tests/spark/ has no files" in found


def test_a_folder_that_cannot_be_collected_alone_is_found(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import nothing_of_this_name\n\ndef test_it(): ...\n")
    (found,) = parts_of_tests.uncollected(str(tmp_path))
    assert found == f"{tmp_path}: cannot be collected: ModuleNotFoundError: No module named 'nothing_of_this_name'"


def test_files_and_tests_that_tables_name_and_are_not_there_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    here = "tests/unit/test_lint_pages.py"
    gone = [f"{here}::test_no" + "body", "tests/unit/test_gone.py"]
    assert list(named_files.missing([here, f"{here}::test_python_of_pages_that_nobody_runs_is_found", *gone])) == gone
    commands = [("python", "-m", "tests.sim.nothing"), ("pytest", f"{here}::test_a", "--seed")]
    assert list(named_files.in_commands(commands)) == ["tests/sim/nothing.py", here]
    budgets = Budgets({"nowhere": 1.0}, {"unit": 1.0}, {gone[1]: "why", here: ""})
    monkeypatch.setattr(Budgets, "read", lambda: budgets)
    assert list(named_files.violations()) == [
        "tests/budgets.toml: tests/unit/test_gone.py is not there",
        f"tests/budgets.toml: {here} has no reason",
        "tests/budgets.toml: tests/nowhere is no folder",
    ]


def test_keys_without_a_meaning_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meanings = {**field_meanings(), "odd": "Nothing.", "node_id": "the id"}
    del meanings["log_dirs"]
    assert list(configuration_page.wrong_in(meanings)) == [
        "log_dirs: has no meaning, write it under the field",
        "odd: has a meaning and is no key",
        "node_id: its meaning does not end with a full stop",
    ]
    monkeypatch.setattr(configuration_page, "PAGE", tmp_path / "CONFIGURATION.md")
    configuration_page.PAGE.write_text("old\n")
    assert list(configuration_page.violations()) == [
        "docs/CONFIGURATION.md: is not what the code gives; run `make docs`"
    ]


def test_settings_and_sentences_that_the_page_lacks_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (open_log_page.ROOT / open_log_page.PAGE).read_text(encoding="utf-8")
    changed = page.replace("| `max_batch_bytes` | ", "| `max_batch_bytes` | 1", 1).replace(
        "| `segment_ms` |", "| `segment_m` |", 1
    )
    assert [line.split(",")[0] for line in open_log_page.wrong_in_table(changed)] == [
        "has no setting segment_ms",
        "segment_m is no setting",
        "the default of max_batch_bytes is 1",
    ]
    for name in open_log_page.SAID:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(page.replace("--accept-loss", ""))
    monkeypatch.setattr(open_log_page, "ROOT", tmp_path)
    found = list(open_log_page.violations())
    assert "docs/OPEN_LOG.md: does not say '--accept-loss'" in found
    assert "README.md: does not say 'exactly what was fsynced after `kill -9`'" in found


def test_methods_that_a_synchronous_client_lacks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def read(self, offset: int) -> int:
            return offset

        def seek(self) -> None: ...

        def close(self) -> None: ...

    class SyncClient:
        def read(self) -> int:
            """Reads."""
            return 0

        async def close(self) -> None: ...

    pairs: Any = ((Client, SyncClient),)
    monkeypatch.setattr(sync_clients, "PAIRS", pairs)
    found = [line.partition(": is (")[0] for line in sync_clients.violations()]
    assert found == [
        "SyncClient.close: has no docstring",
        "SyncClient.read",
        "SyncClient.seek: is not there",
        "SyncClient.close: is a coroutine",
    ]
