"""Tests wait for conditions: who lets a fixed time pass says why, here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]

IN_VIRTUAL_TIME = ("sim/", "unit/testing/", "unit/spark/test_spark_patience.py", "unit/spark/test_spark_engine.py")
"""Where a sleep takes no time."""

MAY_SLEEP = {
    "quiet.py quiet_for": "what must not happen gets time to happen",
    "cluster_load.py _ask_forever": "the rate of a load",
    "test_broker_hostile_streams.py run": "the pace of a load",
    "test_broker_driver.py test_a_cancelled_watched_task_is_no_failure": "a task that is cancelled",
    "test_broker_loop_lag.py test_a_loop_that_is_held_up_is_seen_at_once_and_afterwards": "the loop is held up",
    "test_cli_interrupts.py stubborn": "a task that does not end in time",
    "test_client_producer_chaos.py disturb": "the pace of disturbances",
    "test_client_producer_chaos.py test_chaos": "the pace of a load, and how long it is disturbed",
    "test_cluster_kill.py test_storm_of_kills": "the length of an outage",
    "test_cluster_topic_forks.py test_a_fork_is_whole_or_not_there_when_all_nodes_are_killed_during_it": "when nodes die",
    "test_cluster_topic_forks.py test_forks_under_load_while_nodes_are_killed": "when a node dies",
    "test_cluster_pause.py test_pause_again_and_again": "the length of a pause",
    "test_cluster_pause.py test_all_paused_together": "the length of a pause",
    "test_embedded_group_ends.py work": "the pace of an application",
    "test_groups_commits.py read_on": "virtual time",
    "test_link.py hold_up": "the loop is held up",
    "test_worker.py handle": "the pace of a handler",
    "test_rpc_looks.py be_held_up": "the loop is held up",
    "test_rpc_looks.py test_what_came_in_time_is_kept_and_no_timer_is_left": "what must not happen gets time to happen",
    "test_rpc_tcp_stream.py test_a_loop_that_was_held_up_takes_nobody_for_dead": "the loop is held up",
}
"""File and function, and what its sleeps are; a loop that polls for its own condition needs no line here."""


def sleeping(module: ast.Module) -> Iterator[str]:
    """The functions of a module that sleep and neither yield to the loop (`sleep(0)`) nor poll for a condition."""
    for function in ast.walk(module):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from (function.name for call in _sleeps(function.body) if not _is_zero(call))


def _sleeps(nodes: list[ast.stmt] | list[ast.AST]) -> Iterator[ast.Call]:
    """Calls of `sleep` outside of inner functions and of loops that poll."""
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.While) and not isinstance(node.test, ast.Constant):
            continue
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "sleep":
            yield node
        yield from _sleeps(list(ast.iter_child_nodes(node)))


def _is_zero(call: ast.Call) -> bool:
    seconds = call.args[0]
    return isinstance(seconds, ast.Constant) and seconds.value == 0


def found() -> frozenset[str]:
    files = [file for file in TESTS.rglob("*.py") if not str(file.relative_to(TESTS)).startswith(IN_VIRTUAL_TIME)]
    texts = [(file.name, file.read_text(encoding="utf-8")) for file in files]
    return frozenset(
        f"{name} {function}" for name, text in texts if "sleep(" in text for function in sleeping(ast.parse(text))
    )


def violations() -> Iterator[str]:
    """Yields each function that lets a fixed time pass without saying why, and each line here that no function needs."""
    slept = found()
    for name in sorted(slept - MAY_SLEEP.keys()):
        yield f"{name}: wait for a condition, or use tests/quiet.py where nothing may happen"
    yield from (f"{name}: does not sleep, its line is left over" for name in sorted(MAY_SLEEP.keys() - slept))
