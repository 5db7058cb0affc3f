"""Checks an installed wheel: ``python tools/check_wheel.py``, with nothing of the checkout on the path.

The compiled codec must be there and in use, what it was generated from must not, and a log must keep what it is given.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    """Returns 0 for a good wheel; otherwise says on stderr what is wrong."""
    import replog
    from replog import records

    package = Path(replog.__file__).parent
    generated = sorted(path.name for path in (package / "records").glob("*.c"))
    with tempfile.TemporaryDirectory() as folder, replog.open_log(f"{folder}/log") as log:
        log.append(b"value", key=b"key")
        kept = [(record.offset, record.key, record.value) for record in log]
    problems = [
        problem
        for is_there, problem in (
            (ROOT in package.parents and ".venv" not in package.parts, f"replog comes from the checkout: {package}"),
            (records.IMPLEMENTATION == "python", "the compiled codec is missing"),
            (bool(generated), f"generated sources are in it: {generated}"),
            (kept != [(0, b"key", b"value")], f"a log gave back {kept}"),
        )
        if is_there
    ]
    for problem in problems:
        sys.stderr.write(f"error: {problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
