"""A small repository to compare commits of: a product with a speed, and workers that say it at once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bench.environment import ROOT

PYPROJECT = """\
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""

BACKEND = """\
import zipfile
from pathlib import Path

def build_wheel(folder, config_settings=None, metadata_directory=None):
    count = Path({built!r})
    count.write_text(count.read_text() + "once " if count.exists() else "once ")
    files = {{
        "replog/records/_codec.abi3.so": {content!r},
        "replog-0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: replog\\nVersion: 0\\n",
        "replog-0.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }}
    files["replog-0.dist-info/RECORD"] = "".join(f"{{name}},,\\n" for name in files)
    with zipfile.ZipFile(Path(folder) / "replog-0-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return "replog-0-py3-none-any.whl"
"""

WORKER = """\
import argparse, json, os, subprocess, sys, time
from pathlib import Path
import replog

parser = argparse.ArgumentParser()
parser.add_argument("names", nargs="+")
for name in ("--output", "--directory", "--scale"):
    parser.add_argument(name)
options = parser.parse_args()
if replog.HANGS:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(replog.HANGS).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)
with open(options.output, "a") as output:
    for name in options.names:
        found = {"error": "no such thing"} if name in replog.LACKS else {
            "values": {"figure": [replog.SPEED, "1/s"], "cpu": [1 / replog.SPEED, "s"]}
        }
        print(json.dumps({"line": name} | found), file=output)
"""


def git(root: Path, *arguments: str) -> str:
    """Runs git in a repository; returns what it prints."""
    who = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
    command = ["git", "-C", str(root), *who, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def write_product(root: Path, *, speed: float = 1.0, hangs: str = "", lacks: tuple[str, ...] = ()) -> None:
    """Writes the product's only module."""
    text = f"SPEED = {speed}\nHANGS = {hangs!r}\nLACKS = {lacks!r}\n"
    (root / "replog" / "__init__.py").write_text(text, encoding="utf-8")


def commit(root: Path) -> str:
    """Commits what is there; returns the commit."""
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "change")
    return git(root, "rev-parse", "HEAD")


def make_repository(root: Path) -> Path:
    """Makes a repository with one commit, whose bench says the speed of the product that it finds."""
    (root / "replog" / "records").mkdir(parents=True)
    (root / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    (root / "setup.py").write_text("", encoding="utf-8")
    (root / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    write_product(root)
    shutil.copytree(ROOT / "bench" / "guard", root / "bench" / "guard", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "bench" / "__init__.py").write_text("", encoding="utf-8")
    (root / "bench" / "guard" / "worker.py").write_text(WORKER, encoding="utf-8")
    git(root.parent, "init", "--quiet", str(root))
    commit(root)
    return root
