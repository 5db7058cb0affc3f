"""The program of docs/GROUPS.md runs as it stands there."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from embedded_group_kit import PATIENCE_S, Rig

PAGE = Path(__file__).resolve().parents[2] / "docs" / "GROUPS.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


async def test_the_program_reads(rig: Rig) -> None:
    (program,) = PROGRAMS
    await rig.admin.create_topic("flights", 1)
    await rig.fill("flights", 1, 1)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-c", program.replace("127.0.0.1:9092", rig.servers)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert await process.stdout.readline() == b"0 0 b'0'\n"
    finally:
        process.kill()
        await process.communicate()
