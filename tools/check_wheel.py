"""Checks an installed wheel: ``python tools/check_wheel.py``, with nothing of the checkout on the path.

The compiled codec must be there and in use, a log must keep what it is given, and what is for checkouts must not be there:
the sources that the codec was generated from, examples, and the tool that breaks clusters.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOR_CHECKOUTS = ("examples", "replog_chaos")


def main() -> int:
    """Returns 0 for a good wheel; otherwise says on stderr what is wrong."""
    import replog
    from replog import records
    from replog.spark import json_decoder

    package = Path(replog.__file__).parent
    strangers = [name for name in FOR_CHECKOUTS if find_spec(name) is not None]
    generated = sorted(path.name for path in package.rglob("*.c"))
    with tempfile.TemporaryDirectory() as folder, replog.open_log(f"{folder}/log") as log:
        log.append(b"value", key=b"key")
        kept = [(record.offset, record.key, record.value) for record in log]
    problems = [
        problem
        for is_there, problem in (
            (ROOT in package.parents and ".venv" not in package.parts, f"replog comes from the checkout: {package}"),
            (records.IMPLEMENTATION == "python", "the compiled codec is missing"),
            (json_decoder.IMPLEMENTATION == "python", "the compiled decoder of json values is missing"),
            (bool(generated), f"generated sources are in it: {generated}"),
            (bool(strangers), f"what is for checkouts can be imported: {strangers}"),
            (kept != [(0, b"key", b"value")], f"a log gave back {kept}"),
        )
        if is_there
    ]
    for problem in problems:
        sys.stderr.write(f"error: {problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
