"""Writes the table of `docs/RIGHTS.md` from that of the code (`replog/protocol/rights/table.py`).

python tools/rights_page.py            writes it
python tools/rights_page.py --check    writes nothing, and fails if the page is out of date
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from replog.access.entries import AclOperation, ResourceKind
from replog.protocol.private import FIRST_KEY
from replog.protocol.rights.needs import Each, Inside, Need, Right
from replog.protocol.served import SERVED, Served

PAGE = Path(__file__).resolve().parents[1] / "docs" / "RIGHTS.md"
BEGIN, END = "<!-- written by tools/rights_page.py -->\n", "<!-- end -->\n"


def rewritten(text: str) -> str:
    """Returns the page with the tables of now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{_tables()}\n{END}{after}"


def _tables() -> str:
    kafkas = [api for api in SERVED if api.key < FIRST_KEY]
    ours = [api for api in SERVED if api.key >= FIRST_KEY]
    return f"### Kafka's APIs\n\n{_table(kafkas)}\n### APIs of replog's own\n\n{_table(ours)}"


def _table(apis: Iterable[Served]) -> str:
    rows = [f"| {api.name} | {_needed(api.right)} | {_noted(api.right)} |\n" for api in sorted(apis, key=_name)]
    return "| API | needs | and |\n|---|---|---|\n" + "".join(rows)


def _name(api: Served) -> str:
    return api.name


def _noted(right: Right) -> str:
    told = ["is told in the audit log"] if right.administers else []
    return "; ".join([right.note, *told] if right.note else told)


def _needed(right: Right) -> str:
    return "<br>".join(dict.fromkeys(_one(need) for need in right.needs))


def _one(need: Need | Each | Inside) -> str:
    if isinstance(need, Need):
        otherwise = "" if need.otherwise is None else f" or {need.otherwise.name}"
        of = "" if need.names is None else ": else nothing is done"
        return f"{_on(need.operation, need.kind, otherwise)}{of}"
    if isinstance(need, Inside):
        return f"{_on(need.operation, need.kind)}: {need.what}"
    kinds = " or ".join(kind.name for kind in need.kinds)
    everywhere = "" if need.everywhere is None else f"; {need.everywhere.name} on CLUSTER does for all"
    return f"{need.operation.name} on {kinds}: each is refused for itself{everywhere}"


def _on(operation: AclOperation, kind: ResourceKind, otherwise: str = "") -> str:
    return f"{operation.name}{otherwise} on {kind.name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    text = PAGE.read_text(encoding="utf-8")
    if not parser.parse_args().check:
        PAGE.write_text(rewritten(text), encoding="utf-8")
        return 0
    if rewritten(text) == text:
        return 0
    sys.stdout.write("docs/RIGHTS.md has another table than the code: run `python tools/rights_page.py`\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
