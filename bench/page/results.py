"""Reads what `bench run --json` wrote, for the page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import show_params
from bench.model import Row, Trace


class ResultsFileError(Exception):
    """A file is none that `bench run --json` wrote; the message says why and which."""


@dataclass(frozen=True, slots=True)
class Results:
    """One run of one scenario."""

    scenario: str
    environment: Mapping[str, Any]
    missing: Mapping[str, str]
    durability: Mapping[str, str]
    rows: Sequence[Row]
    traces: Sequence[Trace]

    def cases(self) -> list[str]:
        """The cases as text, in the order of the run."""
        return list(dict.fromkeys(show_params(row.params) for row in self.rows))

    def of_case(self, case: str, metric: str) -> list[Row]:
        """The rows of one metric, a system each."""
        return [row for row in self.rows if row.metric == metric and show_params(row.params) == case]


def read(path: Path) -> Results:
    """Reads one file.

    Raises:
        ResultsFileError: It cannot be read, or holds something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        rows = [Row(**row) for row in found["rows"]]
        traces = [Trace(**trace) for trace in found.get("traces", [])]
        scenario = rows[0].scenario
        return Results(scenario, found["environment"], found["missing"], found.get("durability", {}), rows, traces)
    except OSError as error:
        raise ResultsFileError(f"{path}: {error.strerror}") from error
    except IndexError:
        raise ResultsFileError(f"{path}: there are no rows in it: nothing was measured in that run") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"{path}: not what `python -m bench run NAME --json FILE` writes ({type(error).__name__}: {error})"
        raise ResultsFileError(text) from error
