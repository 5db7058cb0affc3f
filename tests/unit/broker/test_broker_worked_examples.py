"""Worked examples of a leader, its follower and a producer: `tests/data/broker/worked_*.txt`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker_kit import Fetched, Rig, registered, rig, topic

from replog.records import scan
from replog.rpc.messages import ProduceResult
from tests import datadriven

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "data" / "broker").glob("worked_*.txt"))


class Example:
    """Runs the commands of one file; says what changed for whom."""

    def __init__(self, it: Rig) -> None:
        self._it = it
        self._fetched: Fetched | None = None
        self._produced: asyncio.Future[ProduceResult] | None = None

    async def execute(self, command: str) -> list[str]:
        match command.split():
            case ["fetch", "at", offset]:
                self._fetched = self._it.fetch(int(offset), replica_id=2)
            case ["produce"]:
                self._produced = self._it.produce()
            case ["advance", ms, "ms"]:
                await self._it.advance(int(ms))
            case _:
                raise ValueError(f"unknown command: {command}")
        await self._it.settle()
        return [*self._follower(), *self._producer()]

    def _follower(self) -> list[str]:
        if self._fetched is None:
            return []
        if self._fetched.is_parked:
            return ["follower waits"]
        found = [str(header.base_offset) for header in scan(bytes(self._fetched.response.batches[0]))]
        self._fetched = None
        return [f"follower gets {' '.join(found) or 'nothing'}"]

    def _producer(self) -> list[str]:
        if self._produced is None:
            return []
        lines = ["producer waits"]
        if self._produced.done():
            lines = [f"producer has {self._produced.result().base_offset}"]
            self._produced = None
        return [*lines, f"high watermark {self._it.replica.high_watermark}"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
async def test_worked_example(path: Path) -> None:
    async with rig() as it:
        await it.apply(registered(1), registered(2), *topic((1, 2)))
        example = Example(it)
        for block in datadriven.parse(path.read_text(encoding="utf-8")):
            seen = [line for command in block.commands for line in await example.execute(command)]
            assert seen == list(block.expected or ()), f"{path.name} line {block.line}"
