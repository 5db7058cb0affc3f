"""Writes the tables of the Spark connector's options into `docs/SPARK.md`, from the tables of the code.

`python tools/spark_options.py` writes, `--check` only compares.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from replog.spark.options.foreign import FOREIGN_OPTIONS, Treatment  # noqa: E402 - the path comes first
from replog.spark.options.table import OPTIONS  # noqa: E402
from replog.spark.options.uses import Use  # noqa: E402

PAGE = ROOT / "docs" / "SPARK.md"


def options() -> str:
    """A Markdown table of our options."""
    rows = [
        f"| `{option.name}` | {_uses(option.uses)} | {_default(option.default)} | {option.meaning} |"
        for option in OPTIONS
    ]
    return "\n".join(["| option | for | default | meaning |", "|---|---|---|---|", *rows])


def foreign_options() -> str:
    """A Markdown table of the names that other connectors know, those with the same reason together."""
    return "\n".join(["| name | for | what becomes of it |", "|---|---|---|", *_foreign_rows()])


def _foreign_rows() -> Iterator[str]:
    together: dict[tuple[Treatment, Use, str, str], list[str]] = {}
    for option in FOREIGN_OPTIONS:
        besides = f", unless it is {', '.join(sorted(option.harmless_values))}" if option.harmless_values else ""
        together.setdefault((option.treatment, option.uses, besides, option.reason), []).append(f"`{option.name}`")
    for (treatment, uses, besides, reason), names in together.items():
        yield f"| {', '.join(names)} | {_uses(uses)} | {treatment.value}{besides}: {reason} |"


def _uses(uses: Use) -> str:
    return {Use.READ: "reads", Use.ANY: "all"}.get(uses, uses.title)


def _default(default: str | None) -> str:
    return "not set" if default is None else f"`{default}`"


def rewritten(text: str) -> str:
    """The page with the parts between its marks made anew."""
    for kind, made in (("options", options()), ("foreign options", foreign_options())):
        begin, end = f"<!-- {kind}, made by `make docs`: begin -->\n", f"<!-- {kind}: end -->"
        before, rest = text.split(begin)
        text = before + begin + made + "\n" + end + rest.split(end)[1]
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    arguments = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    if rewritten(text) == text:
        return 0
    if arguments.check:
        sys.stdout.write(
            "docs/SPARK.md is not what the tables of options give: run `make docs` and commit the result\n"
        )
        return 1
    PAGE.write_text(rewritten(text), encoding="utf-8")
    sys.stdout.write("written: docs/SPARK.md\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
