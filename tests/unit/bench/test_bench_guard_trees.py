"""Trees of the guard: each has its own product and compiled modules, and nothing of any other."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest
from guard_kit import BACKEND, commit, git, make_repository, write_product

from bench.guard import trees
from bench.guard.trees import Tree, TreeError, UnknownCommitError, make_tree, resolve
from bench.guard.turns import ELSEWHERE


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in a folder with a space in its name, asked from another folder; nothing is compiled."""
    root = make_repository(tmp_path / "a folder" / "repository")
    monkeypatch.setattr(trees, "ROOT", root)
    monkeypatch.setenv("REPLOG_PURE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir("/")
    return root


def say(tree: Tree, expression: str) -> str:
    """What an expression is in the tree's own interpreter; the last line of the error if there is one."""
    command = [str(tree.python), "-c", f"print({expression})"]
    env = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    done = subprocess.run(command, cwd=tree.folder, env=env, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip().splitlines()[-1]


def test_a_tree_has_the_product_of_its_commit_and_the_bench_of_this_checkout(repository: Path, tmp_path: Path) -> None:
    first = resolve("HEAD")
    write_product(repository, speed=2)
    (repository / "bench" / "newer.py").write_text("WORK = 'newest'\n", encoding="utf-8")
    tree = make_tree("base", first, tmp_path / "base tree")
    assert say(tree, "__import__('replog').SPEED") == "1.0"
    assert say(tree, "__import__('bench.newer').newer.WORK") == "newest"


def test_a_tree_finds_no_module_of_the_checkout_that_asks(repository: Path, tmp_path: Path) -> None:
    tree = make_tree("base", resolve("HEAD"), tmp_path / "base")
    assert "No module named 'replog.client'" in say(tree, "__import__('replog.client')")
    assert "No module named 'replog_quorum'" in say(tree, "__import__('replog_quorum')")
    assert say(tree, "__import__('psutil').__name__") == "psutil", "but the libraries"


def test_the_working_tree_counts_with_all_its_changes(repository: Path, tmp_path: Path) -> None:
    (repository / "replog" / "old.py").write_text("", encoding="utf-8")
    commit(repository)
    before = git(repository, "status", "--porcelain")
    (repository / "replog" / "old.py").unlink()
    (repository / "replog" / "new one.py").write_text("", encoding="utf-8")
    write_product(repository, speed=3)
    tree = make_tree("working tree", None, tmp_path / "candidate")
    assert say(tree, "__import__('replog').SPEED") == "3"
    assert (tree.folder / "replog" / "new one.py").exists()
    assert not (tree.folder / "replog" / "old.py").exists()
    assert before == ""
    assert git(repository, "worktree", "list").count("\n") == 0


@pytest.mark.parametrize("name", ["no-such", "HEAD:setup.py", "--all"])
def test_what_is_no_commit_is_told(name: str, repository: Path) -> None:
    with pytest.raises(UnknownCommitError):
        resolve(name)


def with_codec(repository: Path, backend: str) -> str:
    (repository / "replog" / "records" / "_codec.pyx").write_text("# a codec\n", encoding="utf-8")
    (repository / "backend.py").write_text(backend, encoding="utf-8")
    return commit(repository)


def test_modules_are_compiled_from_the_sources_of_the_tree_and_once(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REPLOG_PURE")
    built = tmp_path / "built"
    first = with_codec(repository, BACKEND.format(built=str(built), content="old"))
    (repository / "replog" / "records" / "_codec.pyx").write_text("# a better codec\n", encoding="utf-8")
    (repository / "backend.py").write_text(BACKEND.format(built=str(built), content="new"), encoding="utf-8")
    contents = {}
    for name, each in (("old", first), ("new", None), ("again", first)):
        folder = make_tree(name, each, tmp_path / name).folder
        contents[name] = (folder / "replog" / "records" / "_codec.abi3.so").read_text(encoding="utf-8")
        assert not (folder / "build").exists()
    assert contents == {"old": "old", "new": "new", "again": "old"}
    assert built.read_text(encoding="utf-8") == "once once "


def test_a_tree_that_cannot_be_built_says_why_and_leaves_nothing_in_the_cache(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REPLOG_PURE")
    name = with_codec(repository, "raise RuntimeError('no compiler today')")
    with pytest.raises(TreeError, match=r"pip wheel failed: .*no compiler today"):
        make_tree("base", name, tmp_path / "base")
    assert list((tmp_path / "cache" / "replog-bench").iterdir()) == []


def test_a_module_that_was_not_compiled_is_told(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is optional for an installation: a tree without it would be measured with its twin in Python."""

    def build(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        wheels = Path(arguments[arguments.index("--wheel-dir") + 1])
        wheels.mkdir()
        with zipfile.ZipFile(wheels / "replog.whl", "w") as wheel:
            wheel.writestr("replog/records/_scan.abi3.so", "")
        return subprocess.CompletedProcess(arguments, 0, "", "")

    monkeypatch.delenv("REPLOG_PURE")
    monkeypatch.setattr(trees, "run_whole", build)
    name = with_codec(repository, "")
    with pytest.raises(TreeError, match="not compiled: _codec"):
        make_tree("base", name, tmp_path / "base")
    assert list((tmp_path / "cache" / "replog-bench").iterdir()) == []
