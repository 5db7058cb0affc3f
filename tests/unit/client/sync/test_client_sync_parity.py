"""The clients without async offer what the async ones offer: every method, with the same typed arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from replog.client import Admin, Consumer, Producer, SyncAdmin, SyncConsumer, SyncProducer

PAIRS = [(Admin, SyncAdmin), (Producer, SyncProducer), (Consumer, SyncConsumer)]
LIVES_IN_THE_LOOP = {"handle_fork"}
OUTCOMES = {"Delivery": "SyncDelivery", "BulkDelivery": "SyncBulkDelivery"}


def methods_of(cls: type[Any]) -> dict[str, inspect.Signature]:
    names = [name for name, _ in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")]
    return {name: inspect.signature(getattr(cls, name)) for name in {*names, "__init__"} - LIVES_IN_THE_LOOP}


@pytest.mark.parametrize(("asynchronous", "synchronous"), PAIRS)
def test_every_method_is_there_with_the_same_arguments(asynchronous: type[Any], synchronous: type[Any]) -> None:
    theirs = methods_of(synchronous)
    for name, signature in methods_of(asynchronous).items():
        assert name in theirs, f"{synchronous.__name__} has no {name}"
        assert theirs[name].parameters == signature.parameters, name
        returned = OUTCOMES.get(signature.return_annotation, signature.return_annotation)
        assert theirs[name].return_annotation == returned, name


@pytest.mark.parametrize(("asynchronous", "synchronous"), PAIRS)
def test_every_method_says_what_it_does(asynchronous: type[Any], synchronous: type[Any]) -> None:
    for name in set(methods_of(asynchronous)) - {"__init__"}:
        assert getattr(synchronous, name).__doc__, name


@pytest.mark.parametrize(("asynchronous", "synchronous"), PAIRS)
def test_nothing_is_a_coroutine(asynchronous: type[Any], synchronous: type[Any]) -> None:
    assert not [name for name in methods_of(synchronous) if inspect.iscoroutinefunction(getattr(synchronous, name))]
