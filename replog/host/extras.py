"""What to install when an optional library is missing.

Why not ``pip install 'replog[arrow]'``: replog may come from a checkout or a wheel file, and pip would look for that name
in an index.  The libraries themselves are in one, so the command names those, and the interpreter that misses them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Final

# not compiled here: that takes two milliseconds of every program's start, and only an error needs them
_EXTRA: Final = r"""extra\s*==\s*["']([\w-]+)["']"""
_NESTED: Final = r"replog\s*\[([\w,\s-]+)\]"


def install_command(extra: str) -> str:
    """Returns the shell command that installs the libraries of one extra of replog for this interpreter.

    Args:
        extra: The name of the extra, such as "arrow"; pyproject.toml lists them.
    """
    import shlex

    requirements = required_by(extra, _declared()) or [f"replog[{extra}]"]
    return shlex.join([sys.executable or "python3", "-m", "pip", "install", *requirements])


def required_by(extra: str, declared: Iterable[str]) -> list[str]:
    """Returns the requirements of an extra, those of extras that it includes among them; in order, without doubles.

    Args:
        extra: The name of the extra.
        declared: The requirements of the distribution, as in its metadata: ``pyarrow>=18; extra == "arrow"``.
    """
    declared = list(declared)
    found: dict[str, None] = {}
    for line in declared:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        wanted_by = re.search(_EXTRA, marker)
        if wanted_by is None or wanted_by[1] != extra:
            continue
        if nested := re.fullmatch(_NESTED, requirement):
            for name in nested[1].split(","):
                found.update(dict.fromkeys(required_by(name.strip(), declared)))
        else:
            found[requirement] = None
    return list(found)


def _declared() -> list[str]:
    """Returns what the installed distribution says; nothing where replog was not installed but put on the path."""
    from importlib import metadata  # 10 ms that nobody with the library should pay

    try:
        return metadata.requires("replog") or []
    except metadata.PackageNotFoundError:
        return []
