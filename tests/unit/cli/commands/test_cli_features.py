"""`replog features upgrade`: which levels are asked for."""

from __future__ import annotations

import pytest
from cli_kit import Replog

from replog.cli.commands.metadata import levels_of
from replog.metadata.features import SUPPORTED_FEATURES


def test_all_features_go_to_the_highest_levels_where_none_is_named() -> None:
    assert levels_of([]) == {feature.name: feature.max_level for feature in SUPPORTED_FEATURES}
    assert levels_of(["metadata.version=2", "x=0"]) == {"metadata.version": 2, "x": 0}


@pytest.mark.parametrize(
    "given", ["metadata.version", "=3", "metadata.version=", "metadata.version=-1", "x=1e3", "x=99999"]
)
def test_what_is_no_level_is_wrong_usage(replog: Replog, given: str) -> None:
    done = replog("features", "upgrade", "--feature", given)
    assert done.status == 2
    assert done.err.startswith("error: --feature")
