"""No folder of what users install, or run from a checkout, has more files than a stranger can take in; tests have names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("replog", "pyspark_replog", "timeline", "quorum", "checkpoints", "chaos")
FILES_MAX = 25
GENERATED = {"replog/kafka/messages"}
"""Rooms of one generated module for each API of Kafka's."""


def crowded(top: Path) -> dict[str, int]:
    """Returns the folders from `top` on down with more than `FILES_MAX` modules, and how many these are."""
    counts = {folder: len(list(folder.glob("*.py"))) for folder in (top, *(p for p in top.rglob("*") if p.is_dir()))}
    crowds = {folder.relative_to(top.parent).as_posix(): count for folder, count in counts.items() if count > FILES_MAX}
    return {name: count for name, count in crowds.items() if name not in GENERATED}


def test_no_folder_is_crowded() -> None:
    assert all((ROOT / top).is_dir() for top in PRODUCT)
    assert [crowded(ROOT / top) for top in PRODUCT] == [{} for _ in PRODUCT]


def test_a_crowded_folder_is_found(tmp_path: Path) -> None:
    room = tmp_path / "house" / "room"
    room.mkdir(parents=True)
    for number in range(FILES_MAX + 1):
        (room / f"module_{number}.py").touch()
    assert crowded(tmp_path / "house") == {"house/room": FILES_MAX + 1}


def doubles(top: Path) -> list[str]:
    """Returns the names that several modules of folders that are no packages have: one of them would be imported for the other."""
    modules = (path for path in top.rglob("*.py") if path.name != "conftest.py")
    names = Counter(path.name for path in modules if not (path.parent / "__init__.py").exists())
    return sorted(name for name, count in names.items() if count > 1)


def test_each_module_of_the_tests_has_a_name_of_its_own(tmp_path: Path) -> None:
    assert doubles(ROOT / "tests") == []
    for room in ("one", "other"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "test_it.py").touch()
    assert doubles(tmp_path) == ["test_it.py"]
