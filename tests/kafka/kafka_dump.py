"""Kafka's DumpLogSegments: run on many files at once, and what it prints as rows.

Files are dumped together.  Keys and values come as hex (`java/HexDecoder`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from kafka_install import KafkaInstall

TOOL: Final = "kafka.tools.DumpLogSegments"
Fields: TypeAlias = dict[str, str]

COMPLAINTS: Final = ("isvalid: false", "Exception", "corrupt")
"""What says in the output that something is wrong; mismatches are printed as errors."""
_DUMPING: Final = "Dumping "
_FIELD: Final = re.compile(r"(\w+): (OptionalLong\[-?\d+\]|OptionalLong\.empty|\[[^\]]*\]|\S*)")


@dataclass(slots=True)
class FileDump:
    """What the tool said about one file.

    Attributes:
        batches: fields of each batch, in order.
        records: fields of each record, in order.
        lines: everything else, in order: index entries, producers.
    """

    batches: list[Fields] = field(default_factory=list)
    records: list[Fields] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def entries(self) -> list[Fields]:
        """The lines as fields."""
        return [dict(_FIELD.findall(line)) for line in self.lines if not line.endswith(" is empty.")]


@dataclass(slots=True)
class Dump:
    """What the tool said about all files of one run; `complaints` is every line that says that something is wrong."""

    files: dict[Path, FileDump]
    complaints: list[str]

    def complaints_about(self, *paths: Path) -> list[str]:
        """Those that name one of these files, and the lines below that say which entries are meant."""
        return [line for path, line in self._by_file() if path in paths]

    def other_complaints(self, *paths: Path) -> list[str]:
        """All others."""
        return [line for path, line in self._by_file() if path not in paths]

    def _by_file(self) -> Iterator[tuple[Path, str]]:
        path = Path()
        for line in self.complaints:
            if not line.startswith(" "):
                path = Path(line.partition(" in ")[2].lstrip(":"))
            yield path, line


def dump(kafka: KafkaInstall, files: Sequence[Path], *options: str) -> Dump:
    """Runs the tool.

    Args:
        kafka: where it is.
        files: segments, indexes and snapshots; every index needs its segment beside it.
        options: instead of a full dump of every record.
    """
    how = options or (
        "--deep-iteration",
        "--print-data-log",
        "--key-decoder-class",
        "HexDecoder",
        "--value-decoder-class",
        "HexDecoder",
    )
    printed = kafka.run(TOOL, *how, "--files", ",".join(map(str, files)))
    found: dict[Path, FileDump] = {}
    current = FileDump()
    for line in printed.output.splitlines():
        if line.startswith(_DUMPING):
            current = found.setdefault(Path(line.removeprefix(_DUMPING)), FileDump())
        elif line.startswith("baseOffset: "):
            current.batches.append(dict(_FIELD.findall(line)))
        elif line.startswith("| offset: "):
            current.records.append(dict(_FIELD.findall(line)))
        elif not line.startswith("Log starting offset"):
            current.lines.append(line)
    complaints = [line for line in printed.output.splitlines() if any(words in line for words in COMPLAINTS)]
    return Dump(found, complaints + printed.errors.splitlines())
