"""The check that replog/pb/v1 is what proto/ gives (`make lint` runs it) notices when it is not."""

from __future__ import annotations

import importlib.util
import shutil
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]

pytest.importorskip("grpc_tools", reason="needs the dev extra")
if not version("grpcio-tools").startswith("1.73."):
    pytest.skip("the code is made with the protoc of the dev extra, and this is another one", allow_module_level=True)


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "tools" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_changed_missing_and_left_over_files_are_named(
    generate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "proto", tmp_path / "proto")
    package = tmp_path / "replog" / "pb" / "v1"
    package.mkdir(parents=True)
    monkeypatch.setattr(generate, "ROOT", tmp_path)

    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    changed, removed, *_ = sorted(package.glob("*_pb2.py"))
    changed.write_text(changed.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    removed.unlink()
    (package / "old_pb2.py").touch()
    capsys.readouterr()

    assert generate.main(["--check"]) == 1
    said = capsys.readouterr().err
    assert [line.split()[0] for line in said.splitlines()[:-1]] == [
        f"replog/pb/v1/{name}" for name in sorted((changed.name, "old_pb2.py", removed.name))
    ]

    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


def test_wrong_usage(generate: ModuleType) -> None:
    assert generate.main(["--what"]) == 2
