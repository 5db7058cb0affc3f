"""Lays a commit out as a tree that can be measured: its product, its compiled modules, its own interpreter; our workload.

    <folder>/                   the files of the commit, or of the working tree with all changes
            /bench/             of the checkout that asks, in every tree: the same work for all
            /replog/            with the compiled modules of these very sources
            /.venv/             an interpreter that finds this tree, and the libraries of ours

Why an interpreter of its own: the one of a checkout is installed to find that checkout, and would quietly take from it what an
older tree does not have.  Its processes start in the tree's folder, for ``-m`` looks there first.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.cache import kept
from bench.environment import ROOT
from bench.systems.child_processes import run_whole

SOURCE_ROOTS = (".", "timeline", "quorum", "checkpoints", "chaos")
PRODUCT = "replog"
REASON_LENGTH_MAX = 300


class UnknownCommitError(Exception):
    """There is no such commit, or no repository."""


class TreeError(Exception):
    """A tree cannot be built; the message says why."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree that is ready.

    Attributes:
        name: How it is called in tables.
        folder: Where it is.
    """

    name: str
    folder: Path

    @property
    def python(self) -> Path:
        """The interpreter that finds this tree and no other."""
        return self.folder / ".venv" / "bin" / "python"


def resolve(commit: str) -> str:
    """Returns the name of a commit in the repository of this checkout.

    Raises:
        UnknownCommitError: It has none of that name.
    """
    return _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")[:12]


def make_tree(name: str, commit: str | None, folder: Path) -> Tree:
    """Makes a tree in a new folder.

    Args:
        name: How it is called in tables.
        commit: The commit; None: the working tree, with what is changed and new in it.
        folder: The folder to make.

    Raises:
        TreeError: It cannot be built.
    """
    folder.mkdir()
    if commit is None:
        _copy_working_tree(folder)
    else:
        _check_out(commit, folder)
    shutil.rmtree(folder / "bench", ignore_errors=True)
    shutil.copytree(ROOT / "bench", folder / "bench", ignore=shutil.ignore_patterns("__pycache__"))
    _add_compiled_modules(folder)
    _add_interpreter(folder)
    return Tree(name, folder)


def _copy_working_tree(folder: Path) -> None:
    for name in _git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        source = ROOT / name
        if source.is_file():  # one that is deleted and not committed is still listed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / name, follow_symlinks=False)


def _check_out(commit: str, folder: Path) -> None:
    """Writes the files of a commit; the repository is not told of them, so that nothing of them can be left in it."""
    index = {"GIT_INDEX_FILE": str(folder / ".index")}
    _git("read-tree", commit, env=index)
    _git("checkout-index", "--all", f"--prefix={folder}/", env=index)
    (folder / ".index").unlink()


def _git(*arguments: str, env: dict[str, str] | None = None) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | (env or {}))
    except subprocess.CalledProcessError as error:
        raise UnknownCommitError(f"git {' '.join(arguments)}: {error.stderr.strip() or 'nothing found'}") from None
    except OSError as error:
        raise UnknownCommitError(f"git cannot be run: {error}") from None
    return done.stdout.rstrip("\n")


def _add_compiled_modules(folder: Path) -> None:
    """Compiles the modules, or takes those that were compiled from the same sources; ``REPLOG_PURE=1`` has none."""
    if os.environ.get("REPLOG_PURE") == "1":
        return
    sources = [folder / "setup.py", *sorted((folder / PRODUCT).rglob("*.p[yx][xid]"))]
    digest = hashlib.sha256(f"{sys.version} {sysconfig.get_platform()} {_build_system(folder)}".encode())
    for path in sources:
        digest.update(f"\0{path.relative_to(folder)}\0".encode() + path.read_bytes())
    modules = kept(f"modules-{digest.hexdigest()[:12]}", partial(_compile, folder))
    shutil.copytree(modules, folder, dirs_exist_ok=True)


def _build_system(folder: Path) -> object:
    try:
        return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")).get("build-system")
    except (OSError, ValueError) as error:
        raise TreeError(f"pyproject.toml: {error}") from None


def _compile(folder: Path, target: Path) -> None:
    """Builds a tree's package as its installation does, and keeps the compiled modules."""
    wheels = target.parent / "wheels"
    options = ["--no-deps", "--disable-pip-version-check", "--no-input", "--quiet", "--wheel-dir", str(wheels)]
    done = run_whole(sys.executable, "-m", "pip", "wheel", *options, str(folder), cwd=folder)
    shutil.rmtree(folder / "build", ignore_errors=True)
    if done.returncode:
        raise TreeError(f"pip wheel failed: {_last_words(done)}")
    (wheel,) = wheels.glob("*.whl")
    target.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(f"{PRODUCT}/") and name.endswith(".so"):
                archive.extract(name, target)
    wanted = {path.stem for path in (folder / PRODUCT).rglob("*.pyx")}
    if missing := wanted - {path.name.partition(".")[0] for path in target.rglob("*.so")}:
        raise TreeError(f"not compiled: {', '.join(sorted(missing))} (is there a C compiler?)")


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Returns what a build said last, without what pip says about it."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    said = list(itertools.takewhile(lambda line: line != "[end of output]", lines))
    return "; ".join(said)[-REASON_LENGTH_MAX:] or f"exit code {done.returncode}"


def _add_interpreter(folder: Path) -> None:
    """Makes an interpreter whose path is the tree, then the libraries that we have: their `.pth` files do not count."""
    home = folder / ".venv"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(home)
    base = {"base": str(home), "platbase": str(home)}
    packages = Path(sysconfig.get_path("purelib", "venv", base))
    libraries = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    roots = [os.path.relpath(folder / root, packages) for root in SOURCE_ROOTS]
    (packages / "tree.pth").write_text("".join(f"{line}\n" for line in [*roots, *libraries]), encoding="utf-8")
