"""What the pages of docs/concepts say of their pictures is so: the runs give the facts that are kept with the data."""

from __future__ import annotations

import json

import pytest

from tests.sim.concept_runs import PICTURES, RUNS
from tools import pictures

FACTS = {
    "high-watermark": {
        "isr": [3, 2, 3],
        "high watermark is above no member of the ISR": True,
        "it stood still for seconds": 3,
    },
    "rebalance": {
        "partitions in the end": {"a": 6, "c": 3},
        "two members never have the same partition before one is cut off": True,
        "it took seconds until the partitions of the one that was cut off were read": 3,
    },
    "elections": {"leaders of the partition": 2, "epochs rise": True, "isr": [3, 2, 3]},
    "leader-epochs": {
        "with": {"m1, which was acknowledged, is in the leader's log": True, "all replicas are the same": True},
        "without": {"m1, which was acknowledged, is in the leader's log": False, "all replicas are the same": False},
    },
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_shows_what_its_page_says(name: str) -> None:
    kept = json.loads((PICTURES / f"{name}.json").read_text(encoding="utf-8"))
    assert RUNS[name]()["facts"] == kept["facts"] == FACTS[name]


def test_the_pictures_are_drawn_from_their_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert pictures.DRAWN.keys() == RUNS.keys()
    assert pictures.main(["--check"]) == 0, capsys.readouterr().err
