"""Writes the roles of the quorum, as diagram and as table, into the documents, from the transition table of the code.

`python tools/quorum_roles.py` writes, `--check` only compares.  The diagram is Mermaid, which GitHub draws.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "quorum"))

from replog_quorum.transitions import TRANSITIONS  # noqa: E402 - the path comes first

DOCUMENTS = {ROOT / "docs" / "PROTOCOL.md": "diagram", ROOT / "quorum" / "README.md": "table"}


def diagram() -> str:
    """A Mermaid state diagram."""
    ways = [
        f"    {old.value} --> {new.value}: {way.when.replace(';', ' or')}"
        for old, row in TRANSITIONS.items()
        for new, way in row.items()
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> Unattached", *ways, "```"])


def table() -> str:
    """A Markdown table."""
    rows = [
        f"| {old.value} | {new.value} | {way.epoch.value} | {way.when} |"
        for old, row in TRANSITIONS.items()
        for new, way in row.items()
    ]
    return "\n".join(["| from | to | epoch | when |", "|---|---|---|---|", *rows])


def rewritten(text: str, kind: str) -> str:
    """A document with the part between its marks made anew."""
    begin, end = f"<!-- quorum roles, {kind}: begin -->\n", f"<!-- quorum roles, {kind}: end -->"
    before, rest = text.split(begin)
    made = diagram() + "\n\n" + table() if kind == "diagram" else table()
    return before + begin + made + "\n" + end + rest.split(end)[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a document is out of date")
    options = parser.parse_args()
    outdated = [path for path, kind in DOCUMENTS.items() if rewritten(path.read_text(), kind) != path.read_text()]
    for path in outdated:
        if not options.check:
            path.write_text(rewritten(path.read_text(), DOCUMENTS[path]))
        sys.stdout.write(f"{'out of date' if options.check else 'written'}: {path.relative_to(ROOT)}\n")
    return 1 if outdated and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
