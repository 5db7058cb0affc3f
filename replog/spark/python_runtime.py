"""The Python that Spark starts: under its own name, or by a script.

Spark's search for data sources hands the path to a shell.  Where that takes it for something else than one word, as with a space or
an ampersand in it, the search finds nothing; so such a Python is started by a script.

A script can do more.  Spark puts zips of its own Python files before all else on the path of its Python processes, and what comes
from a zip is compiled at each start, which takes half a second of processor time.  A session starts six of them before its first
rows are there, a stream one more each time.  Where pyspark is installed beside replog the script takes the zips away.  It is a file
of this machine, so executors on other ones could not start it.

The script has its place in the temporary folder.  Where that cannot hold it either, because its own name has a space or it lets no
program run, the script is a file in memory: the name is then ``/proc/PID/fd/NUMBER``, one word, and ends with this process.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from replog.errors import ConfigError

_SCRIPT = """\
#!/bin/sh
exec {python} "$@"
"""

_SCRIPT_WITHOUT = """\
#!/bin/sh
# Modules that come from these zips are compiled at each start; the same ones are installed, and compiled once.
set -f
IFS=:
kept=
for entry in ${{PYTHONPATH:+$PYTHONPATH:}}; do
    case $entry in
        {zips}) ;;
        *) kept="$kept:${{entry:-.}}" ;;  # an entry of nothing is the working directory
    esac
done
unset IFS
export PYTHONPATH="${{kept#:}}"
exec {python} "$@"
"""


def unneeded_zips() -> Sequence[Path]:
    """Returns the zips of Spark's Python files whose contents are installed for this Python as folders, too."""
    pyspark, py4j = _folder("pyspark"), _folder("py4j")
    return sorted((pyspark / "python" / "lib").glob("*.zip")) if pyspark and py4j else ()


def _folder(package: str) -> Path | None:
    """Returns where a package is installed; None: it is not, or comes from a zip in this process as well."""
    spec = find_spec(package)
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec is not None else []
    return next((place for place in places if place.is_dir()), None)


def python_for_spark(python: str, script: Path, *, without: Sequence[Path] = ()) -> str:
    """Returns `python`, or a script that runs it where Spark could not find it under its own name.

    Args:
        python: The path of the interpreter.
        script: The path of the script; written only if it is needed, and in memory where Spark could not start it there.
        without: The entries to take from the path on which it looks for modules; they stay where Spark could not start the script.

    Raises:
        ConfigError: Spark could start neither.
    """
    if _is_one_word(python) and not without:
        return python
    script.parent.mkdir(parents=True, exist_ok=True)
    template = _SCRIPT_WITHOUT if without else _SCRIPT
    zips = " | ".join(shlex.quote(str(each)) for each in without)
    text = template.format(python=shlex.quote(python), zips=zips)
    script.write_text(text, encoding="utf-8")
    script.chmod(0o755)
    if _can_be_started(script):
        return str(script)
    script.unlink()
    if _is_one_word(python):
        return python
    in_memory = _written_to_memory(text)
    if in_memory is not None and _can_be_started(in_memory):
        return str(in_memory)
    raise ConfigError(
        "TMPDIR",
        str(script.parent),
        f"Spark hands the path of its Python to a shell, which does not take {python} for one word, and neither a script in "
        f"{script.parent} nor one in memory can stand in for it. Set TMPDIR to a folder that lets programs run and has no spaces and "
        "special characters in its path",
    )


def _can_be_started(script: Path) -> bool:
    """Whether Spark could start a script; no also where it is on a mount with `noexec`."""
    return _is_one_word(str(script)) and os.access(script, os.X_OK)


def _written_to_memory(text: str) -> Path | None:
    """Returns the path of an executable file in memory, which is there until this process ends; None where there can be none (macOS)."""
    if not hasattr(os, "memfd_create"):
        return None
    descriptor = os.memfd_create("python-for-spark")
    os.write(descriptor, text.encode())
    return Path(f"/proc/{os.getpid()}/fd/{descriptor}")


def _is_one_word(path: str) -> bool:
    """Whether a shell takes the path for itself."""
    return shlex.quote(path) == path
