"""Finds the scenarios: every module of `bench.scenarios` has one, as `SCENARIO`."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import bench.scenarios
from bench.model import Scenario


def scenarios() -> dict[str, Scenario[Any]]:
    """All scenarios by name, sorted.

    Raises:
        ValueError: two have one name.
    """
    found: dict[str, Scenario[Any]] = {}
    for module in pkgutil.iter_modules(bench.scenarios.__path__, "bench.scenarios."):
        scenario: Scenario[Any] = importlib.import_module(module.name).SCENARIO
        if scenario.name in found:
            raise ValueError(f"two scenarios are named {scenario.name}")
        found[scenario.name] = scenario
    return dict(sorted(found.items()))
