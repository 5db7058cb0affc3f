"""Makes `.venv` ready for a set of extras: ``python tools/install.py demo``.  Quick when nothing has changed.

Why not plain stamp files: a checkout or `touch` changes times without changing content, and a virtual environment is
also out of date after its folder was moved or another PYTHON was asked for.  So one file in the environment says what
it was made from (`State`), and is written last: an interrupted install is simply continued.

Why a `.pth` file: an editable install finds packages by an import hook, but Spark looks for data sources with
`pkgutil`, which only sees folders on `sys.path`.  Its lines are relative to site-packages, so any path is safe.

Needs nothing but the standard library; runs under the Python that the environment is made from.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
VENV_PYTHON = str(VENV / "bin" / "python")
STATE_FILE = VENV / "replog-install.json"
SOURCE_ROOTS = (".", "timeline", "quorum", "checkpoints", "chaos")
INPUTS = (
    "pyproject.toml",
    "setup.py",
    "constraints.txt",
    "tools/install.py",
    "replog/**/*.pyx",
    "replog/**/*.pxi",
)


@dataclass(frozen=True)
class State:
    """What an environment was made from; it is current when this is equal and holds the wanted extras."""

    location: str
    python: str
    version: str
    inputs: str
    pure: bool
    extras: list[str]


def main(wanted: list[str]) -> int:
    """Brings `.venv` up to date.  Returns the exit code."""
    try:
        before = read_state()
        after = wanted_state(before, wanted)
        if before != after or not Path(VENV_PYTHON).exists():
            make_environment(before, after)
            install(after)
            write_state(after)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"error: `{' '.join(error.cmd)}` failed (exit code {error.returncode}); see above\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def read_state() -> State | None:
    """What is there; None where nothing is, or nothing that can be read."""
    try:
        return State(**json.loads(STATE_FILE.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_state(state: State) -> None:
    STATE_FILE.write_text(json.dumps(asdict(state), indent=1), encoding="utf-8")


def wanted_state(before: State | None, wanted: list[str]) -> State:
    """What should be there: the extras asked for, and those that were installed earlier."""
    kept = before.extras if before is not None and before.location == str(ROOT) else []
    return State(
        location=str(ROOT),
        python=os.path.realpath(sys.executable),
        version=sys.version,
        inputs=digest_of_inputs(),
        pure=os.environ.get("REPLOG_PURE") == "1",
        extras=sorted(with_included({*kept, *wanted})),
    )


def with_included(extras: set[str]) -> set[str]:
    """The extras and those that they include (`dev` includes `test`), so that nothing is installed twice."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = project.get("optional-dependencies", {})
    found: set[str] = set()
    waiting = list(extras)
    while waiting:
        extra = waiting.pop()
        if extra in found:
            continue
        found.add(extra)
        for requirement in requirements.get(extra, ()):
            if match := re.fullmatch(r"replog\[([a-z,-]+)\]", requirement):
                waiting += match[1].split(",")
    return found


def digest_of_inputs() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for pattern in INPUTS for path in ROOT.glob(pattern)):
        digest.update(f"{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def make_environment(before: State | None, after: State) -> None:
    """Creates `.venv`, unless a working one of the same Python is there.

    An environment without a state file is somebody's own or half made: it stays if its Python works and is of the
    wanted version.
    """
    if before is not None:
        usable = (before.location, before.python, before.version) == (after.location, after.python, after.version)
    else:
        usable = version_of_environment() == after.version
    if usable and Path(VENV_PYTHON).exists():
        return
    say(f"creating .venv with Python {sys.version.split()[0]} ({sys.executable})")
    shutil.rmtree(VENV, ignore_errors=True)
    result = subprocess.run([sys.executable, "-m", "venv", ".venv"], cwd=ROOT, check=False)
    if result.returncode != 0:
        sys.stderr.write("\nIf venv or ensurepip is missing: `apt install python3-venv` on Debian and Ubuntu.\n")
        result.check_returncode()


def version_of_environment() -> str | None:
    try:
        command = [VENV_PYTHON, "-c", "import sys; print(sys.version)"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip("\n")
    except (OSError, subprocess.CalledProcessError):
        return None


def install(state: State) -> None:
    """Installs replog (editable) with its extras, and the `.pth` file."""
    say(f"installing replog[{','.join(state.extras)}] into .venv (downloads on the first time; Spark is the large one)")
    if state.pure:  # compiled modules of an earlier install would still be imported
        for compiled in (ROOT / "replog").rglob("*.so"):
            compiled.unlink()
    target = f".[{','.join(state.extras)}]"
    pip = [VENV_PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    options = ["--progress-bar", "on", "--no-compile", "-c", "constraints.txt"]
    environment = {"DIST_EXTRA_CONFIG": str(ROOT / "tools" / "wheels.cfg"), **os.environ}
    subprocess.run([*pip, *options, "-e", target], cwd=ROOT, env=environment, check=True)
    packages = site_packages()
    compile_all(packages)
    lines = (os.path.relpath(ROOT / folder, packages) for folder in SOURCE_ROOTS)
    (packages / "replog-source-roots.pth").write_text("".join(f"{line}\n" for line in lines), encoding="ascii")


def compile_all(packages: Path) -> None:
    """Compiles modules to bytecode on all cores, where pip would use one; those for another Python stay as they are."""
    command = [VENV_PYTHON, "-m", "compileall", "-qq", "--workers", "0", str(packages)]
    subprocess.run(command, cwd=ROOT, check=False)


def site_packages() -> Path:
    command = [VENV_PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return Path(output.rstrip("\n"))


def say(text: str) -> None:
    sys.stdout.write(f"== {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
