"""No folder of what users install, or run from a checkout, has more files than a stranger can take in."""

from __future__ import annotations

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
