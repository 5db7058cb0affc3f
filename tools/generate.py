"""Writes `replog/pb/v1/` from `proto/`; with `--check`, says whether the committed code is what `proto/` gives.

Why a check: generated code is committed, so that installing needs no compiler for it, and committed code drifts.
It must be made with the `grpcio-tools` of the `dev` extra: its protoc writes code for the oldest protobuf we support.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("replog/pb/v1")
GENERATED = ("*_pb2.py", "*_pb2.pyi")


def main(arguments: list[str]) -> int:
    """Returns the exit code: 1 where a check finds a difference or protoc fails."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python tools/generate.py [--check]\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        if not generate(Path(folder)):
            return 1
        if not arguments:
            replace(Path(folder))
            return 0
        stale = differences(Path(folder))
    for name in stale:
        sys.stderr.write(f"{name} is not what proto/ gives\n")
    if stale:
        sys.stderr.write("run `make proto` and commit the result\n")
    return 1 if stale else 0


def generate(target: Path) -> bool:
    """Runs protoc into `target`; false where it failed, which it has explained."""
    sources = sorted((ROOT / "proto" / PACKAGE).glob("*.proto"))
    well_known = files("grpc_tools") / "_proto"
    command = ["protoc", f"-I{ROOT / 'proto'}", f"-I{well_known}", f"--python_out={target}", f"--pyi_out={target}"]
    exit_code: int = protoc.main([*command, *map(str, sources)])
    return exit_code == 0


def replace(made: Path) -> None:
    """Puts the new files in place and removes those that no .proto gives any more."""
    for name in names(ROOT) - names(made):
        (ROOT / PACKAGE / name).unlink()
    for name in sorted(names(made)):
        (ROOT / PACKAGE / name).write_bytes((made / PACKAGE / name).read_bytes())
        sys.stdout.write(f"{PACKAGE / name}\n")


def differences(made: Path) -> list[str]:
    """Files that differ, are missing, or are left over."""
    return [
        str(PACKAGE / name)
        for name in sorted(names(made) | names(ROOT))
        if content(made / PACKAGE / name) != content(ROOT / PACKAGE / name)
    ]


def names(root: Path) -> set[str]:
    return {path.name for pattern in GENERATED for path in (root / PACKAGE).glob(pattern)}


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
