"""The rules of `python -m tests.lint` find what they are for: `make lint` runs them, and the run says all that they find."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

from tests.lint import __main__ as lint
from tests.lint import class_names, client_names, docstrings, documents, folders, invariant_labels, kafka_page, waits

LINES = [
    ("fs: The disk.", True),
    ("fs: `Log.read` of it.", True),
    ("first, second: The disks.", True),
    ("asyncio.InvalidStateError: It is not known.", True),
    ("As `read`.", True),
    ("fs: the disk.", False),
    ("first, second: the disks.", False),
    ("asyncio.InvalidStateError: not known.", False),
    ("fs: Of the replicas.", False),
    ("fs: As of `read`.", False),
    ("as `read`.", False),
]
"""First lines of entries, and whether they stand alone."""


def test_each_module_beside_it_is_a_rule() -> None:
    modules = {path.stem for path in Path(lint.__file__).parent.glob("*.py")} - {"__main__"}
    assert {rule.__name__.rpartition(".")[2] for rule in lint.RULES} == modules


def test_all_violations_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rule = ModuleType("rules.one")
    rule.violations = lambda: iter(["here", "there"])  # type: ignore[attr-defined]
    monkeypatch.setattr(lint, "RULES", (rule, rule))
    assert lint.main() == 1
    assert capsys.readouterr().out.splitlines() == [*["one: here", "one: there"] * 2, "4 violations of 2 rules"]
    rule.violations = lambda: iter(())  # type: ignore[attr-defined]
    assert lint.main() == 0


def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Makes one module the product."""
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "module.py").write_text(text)
    monkeypatch.setattr(docstrings, "ROOT", tmp_path)
    monkeypatch.setattr(docstrings, "PRODUCT", ("room",))


def test_docstrings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = "".join(f"\n    {name}:\n        fs: the disk.\n" for name in ("Args", "Raises", "Attributes"))
    planted(tmp_path, monkeypatch, f'def read(fs):\n    """The offset.\n{sections}    """\n')
    assert list(docstrings.violations()) == [
        "room/module.py:1 read: begins with 'The', not with a verb",
        "room/module.py:1 read: Args 'the disk.' is no whole phrase",
        "room/module.py:1 read: Raises 'the disk.' is no whole phrase",
        "room/module.py:1 read: Attributes 'the disk.' is no whole phrase",
    ]


def test_docstrings_of_things_begin_with_a_noun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(tmp_path, monkeypatch, '@property\ndef offset(self):\n    """The offset."""\n')
    assert list(docstrings.violations()) == []


def test_the_rule_for_first_words() -> None:
    texts = ["Returns the offset.", "Whether it is open.", "The offset.", "Bytes in front."]
    assert [docstrings.begins_with_a_verb(text) for text in texts] == [True, True, False, False]


@pytest.mark.parametrize("section", ["Args", "Raises", "Attributes"])
def test_the_rule_for_lines_of_sections(section: str) -> None:
    for line, is_right in LINES:
        text = f"Reads.\n\n{section}:\n    {line}\n        and so on.\n\nReturns:\n    nothing.\n"
        (found,) = docstrings.lines_of(section, text)
        assert docstrings.stands_alone(found) is is_right, line


def test_a_section_in_one_line_is_judged_too() -> None:
    assert docstrings.lines_of("Raises", "Reads.\n\nRaises: as `read`.\n") == ["as `read`."]
    assert docstrings.lines_of("Raises", "Reads.  Raises: as `read`.") == ["as `read`."]
    assert docstrings.lines_of("Raises", "Reads, see Raises: there.\n") == []


def test_each_entry_of_a_section_is_judged() -> None:
    text = "Reads.\n\nRaises:\n    OSError: One.\n\n    ValueError: two.\n        more\n\nArgs:\n    fs: Disk.\n"
    assert docstrings.lines_of("Raises", text) == ["One.", "two."]


def test_a_file_that_is_not_there_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("| `broker/node/node.py`, `assembly.py` | `broker/node/nothing.py`, [x](gone.md) |\n")
    assert documents.missing(page) == ["page.md:1: broker/node/nothing.py", "page.md:1: gone.md"]


def test_a_crowded_folder_is_found(tmp_path: Path) -> None:
    room = tmp_path / "house" / "room"
    room.mkdir(parents=True)
    for number in range(folders.FILES_MAX + 1):
        (room / f"module_{number}.py").touch()
    assert folders.crowded(tmp_path / "house") == {"house/room": folders.FILES_MAX + 1}


def test_a_name_of_two_classes_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for room, name in (("one", "Change"), ("other", "Change"), ("pb", "Change"), ("third", "_Change")):
        (tmp_path / "replog" / room).mkdir(parents=True)
        (tmp_path / "replog" / room / "module.py").write_text(f"class {name}: ...\n")
    monkeypatch.setattr(class_names, "ROOT", tmp_path)
    monkeypatch.setattr(class_names, "SHARED", {"Tick": "why"})
    assert list(class_names.violations()) == [
        "Change: stands for 2 classes, give all but one another name: replog/one/module.py:1, replog/other/module.py:1",
        "Tick: its line is left over",
    ]


def test_two_modules_of_one_name_are_found(tmp_path: Path) -> None:
    for room in ("one", "other"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "test_it.py").touch()
    assert folders.doubles(tmp_path) == ["test_it.py"]


def test_labels_that_are_not_defined_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(invariant_labels.violations()) == []
    rows = [(labels.replace("T1 to T6", "T1 to T5, M1"), file) for labels, file in invariant_labels.ROWS]
    monkeypatch.setattr(invariant_labels, "ROWS", rows)
    found = list(invariant_labels.violations())
    assert found[1:] == ["docs/TESTING.md: M1 is in two rows", "T6: is used and not defined"]
    assert found[0].endswith("controller_simulation.py: does not define M1")


def test_references_to_the_page_are_found() -> None:
    for text, numbers in [
        ("KIP-101; docs/KAFKA.md 4.2 to 4.6, KIP-966", ["4.2", "4.6"]),
        ("see KAFKA.md 1.6, 1.7: an entry", ["1.6", "1.7"]),
        ("docs/KAFKA.md 1 and 3; where", ["1", "3"]),
        ("`docs/KAFKA.md` 4.10.", ["4.10"]),
        ("# as in KAFKA.md 1.5,\n# 3.2 a and b", ["1.5", "3.2"]),
        ("docs/KAFKA.md has them", []),
    ]:
        assert kafka_page.numbers_in(text) == numbers


def test_numbers_that_the_page_does_not_have_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        kafka_page, "texts", lambda: [(kafka_page.PAGE, "KAFKA.md 1.1, 9.99; see kafka-" + "reference")]
    )
    assert list(kafka_page.violations()) == [
        "docs/KAFKA.md: KAFKA.md has no 9.99",
        "docs/KAFKA.md: 'kafka-reference' is not in the repository",
    ]


def test_sleeps_without_a_reason_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    time.sleep(1)\n")
    monkeypatch.setattr(waits, "TESTS", tmp_path)
    monkeypatch.setattr(waits, "MAY_SLEEP", {"quiet.py quiet_for": "why"})
    assert list(waits.violations()) == [
        "test_it.py test_it: wait for a condition, or use tests/quiet.py where nothing may happen",
        "quiet.py quiet_for: does not sleep, its line is left over",
    ]


def test_what_counts_as_a_bare_sleep() -> None:
    for body, is_seen in [
        ("time.sleep(1)", True),
        ("await asyncio.sleep(0.01)", True),
        ("await sleep(seconds)", True),
        ("if x:\n        with y:\n            time.sleep(1)", True),
        ("while True:\n        time.sleep(1)", True),
        ("for _ in range(9):\n        time.sleep(1)", True),
        ("await asyncio.sleep(0)", False),
        ("while not done():\n        time.sleep(0.1)", False),
    ]:
        module = ast.parse(f"async def test() -> None:\n    {body}\n")
        assert list(waits.sleeping(module)) == (["test"] if is_seen else []), body


def test_names_of_the_clients_are_looked_up() -> None:
    row = "| a | `AIOKafkaProducer` | `Producer.send`, `Producer(acks=)`, `Producer.sent`, `Consumer(acks=)`, `Sender`, `flush` |"
    found = client_names.named(f"text `Reader`\n{row}")
    assert [client_names.is_there(*each) for each in found] == [True, True, False, False, False]
