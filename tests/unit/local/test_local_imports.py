"""A log in a process and nothing else: what must not be loaded for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from local_kit import child_environment

HEAVY = ("grpc", "google.protobuf", "pyarrow", "pyspark", "replog.pb", "replog.client", "replog.broker", "replog.rpc")


def _loaded(code: str) -> list[str]:
    code += f"\nimport json, sys\nprint(json.dumps([m for m in {(*HEAVY, 'asyncio')!r} if m in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=child_environment()
    )
    found: list[str] = json.loads(done.stdout)
    return found


def test_the_sync_log_loads_neither_grpc_nor_protobuf_nor_asyncio_nor_pyarrow(tmp_path: Path) -> None:
    code = f"""
import replog
with replog.open_log({str(tmp_path / "log")!r}) as log:
    log.append_many([b"a", b"b"])
    assert len(list(log)) == 2
"""
    assert _loaded(code) == []


def test_the_async_log_adds_asyncio_only(tmp_path: Path) -> None:
    code = f"""
import asyncio, replog
async def main():
    async with replog.open_log_async({str(tmp_path / "log")!r}) as log:
        await log.append(b"a")
asyncio.run(main())
"""
    assert _loaded(code) == ["asyncio"]


def test_the_package_says_what_it_has() -> None:
    import replog
    import replog.local

    for module in (replog, replog.local):
        for name in module.__all__:
            assert getattr(module, name) is not None
