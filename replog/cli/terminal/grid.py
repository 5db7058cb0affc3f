"""A table that stays readable where the terminal is narrow: its last column folds, and before a number is cut, rows become blocks."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

LAST_WIDTH_MIN = 18
"""Of a last column that folds."""

_UNLIMITED = 10_000


class Grid:
    """Rows of plain text under headers.

    Args:
        headers: The names of the columns; one that begins with ">" stands at the right, for numbers.
        rows: The rows, each with as many texts as there are columns.
    """

    def __init__(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self._headers = headers
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self._table()
        needed = Measurement.get(console, options.update(max_width=_UNLIMITED), table)
        if needed.minimum <= options.max_width:
            yield table
        else:
            yield from self._blocks()

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        last = len(self._headers) - 1
        for index, header in enumerate(self._headers):
            title = header.removeprefix(">")
            width = max((len(row[index]) for row in self._rows), default=0)
            table.add_column(
                title,
                justify="right" if header.startswith(">") else "left",
                no_wrap=index != last,
                overflow="fold",
                min_width=min(LAST_WIDTH_MIN, width) if index == last else max(len(title), width),
            )
        for row in self._rows:
            table.add_row(*map(Text, row))
        return table

    def _blocks(self) -> list[RenderableType]:
        """Renders each row as a block: the first column as a heading, the others behind it as words."""
        first, *names = (header.removeprefix(">") for header in self._headers)
        return [
            Text.assemble(
                (f"{first} {row[0]}", "bold"), ": ", "; ".join(f"{n} {v}" for n, v in zip(names, row[1:], strict=True))
            )
            for row in self._rows
        ]
