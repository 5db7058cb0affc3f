"""Processes of measurements and tests find bytecode, whatever the environment wants."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import subprocess, sys
from pathlib import Path
from bench.bytecode import keep_bytecode
keep_bytecode(Path(sys.argv[1]))
subprocess.run([sys.executable, "-c", "import bench.bytecode"], check=True)
"""


@pytest.mark.parametrize(("unwanted", "kept"), [("1", ["bytecode.cpython"]), ("", [])])
def test_processes_find_bytecode(tmp_path: Path, unwanted: str, kept: list[str]) -> None:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    env |= {"PYTHONDONTWRITEBYTECODE": unwanted}
    root = Path(__file__).resolve().parents[3]
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], cwd=root, env=env, check=True)
    found = {path.name.partition("-")[0] for path in tmp_path.rglob("bytecode.*.pyc")}
    assert sorted(found) == kept
