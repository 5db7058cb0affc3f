"""Lag, out of the progress of a query."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import replog.spark
from replog.client.types import TopicPartition
from replog.spark.stream.offset import Place, StreamOffset, to_json


def offset(**ends: int) -> dict[str, Any]:
    places = {TopicPartition("t", int(name[1:])): Place(UUID(int=1), end, 0) for name, end in ends.items()}
    return to_json(StreamOffset("c", places))


def source(latest: Any, end: Any) -> dict[str, Any]:
    return {"description": "PythonMicroBatchStream", "latestOffset": latest, "endOffset": end}


def test_lag_of_each_partition() -> None:
    """Example: partition 1 has never been read, partition 2 is read up to its end."""
    progress = {"sources": [source(offset(p0=30, p1=5, p2=9), offset(p0=10, p2=9))]}
    expected = {"t": {0: 20, 1: 5, 2: 0}}
    assert replog.spark.lag(progress) == expected
    assert replog.spark.lag(json.dumps(progress)) == expected
    assert replog.spark.lag(SimpleNamespace(json=json.dumps(progress))) == expected


def test_offsets_as_text_and_several_sources() -> None:
    first = source(json.dumps(offset(p0=30)), json.dumps(offset(p0=10)))
    assert replog.spark.lag({"sources": [first, source(offset(p0=30), offset(p0=29))]}) == {"t": {0: 20}}


def test_other_sources_are_passed_over() -> None:
    kafka = source({"t": {"0": 5}}, {"t": {"0": 1}})
    assert replog.spark.lag({"sources": [kafka, source(None, offset(p0=1)), source("5", "4"), source("-", "4")]}) == {}
    assert replog.spark.lag({}) == {}
