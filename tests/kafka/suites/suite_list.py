"""What is expected of each test of a suite: a TOML file beside this module for each.

    limit_s = 60                        how long a test may take
    quick = ["..."]                     the few that `make test` runs, too
    tests = ["...", ".../..."]          all that are run; of some only parts
    [broker]                            keys of the brokers' configuration, which both kinds know
    [left_out]                          reason = [tests]: not run at all
    [failed.replog]  [skipped.replog]   reason = [tests]: what does not pass with a broker of ours,
    [failed.kafka]   [skipped.kafka]    with Apache Kafka,
    [failed.both]    [skipped.both]     with both

Who makes a test pass removes it from its list: one that is expected to fail and passes is an error, too.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from suites.client_suite import ClientSuite, Outcome
from suites.franz_go import FranzGo
from suites.kafka_python import KafkaPython
from suites.librdkafka import Librdkafka

SIDES = ("replog", "kafka")
SUITES: Mapping[str, ClientSuite] = {
    "franz-go": FranzGo(),
    "kafka-python": KafkaPython(),
    "librdkafka": Librdkafka(),
    "librdkafka-consumer": Librdkafka(group_protocol="consumer"),
    "librdkafka-noautocreate": Librdkafka("noautocreate"),
}


class Expected(NamedTuple):
    """How a test ends, and why if it does not pass."""

    outcome: Outcome = Outcome.PASSED
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SuiteList:
    """What a file says.

    Attributes:
        left_out: Tests that are not run, and why.
        expected: For each side the tests that do not pass.
    """

    limit_s: float
    quick: tuple[str, ...]
    tests: tuple[str, ...]
    broker: Mapping[str, Any]
    left_out: Mapping[str, str]
    expected: Mapping[str, Mapping[str, Expected]]

    def of(self, side: str, test: str) -> Expected:
        """Returns what is expected of a test."""
        return self.expected[side].get(test, Expected())

    def problems(self) -> list[str]:
        """Returns what is wrong with the file by itself."""
        named = [*self.tests, *self.left_out]
        strangers = {test for side in SIDES for test in self.expected[side]} | {*self.quick}
        return [
            *(f"{test} is named twice" for test in sorted({*named}) if named.count(test) > 1),
            *(f"{test} is not in tests" for test in sorted(strangers - {*self.tests})),
        ]


def suite_list(name: str) -> SuiteList:
    """Reads the file of a suite."""
    read = tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))
    found = SuiteList(
        limit_s=read.pop("limit_s"),
        quick=tuple(read.pop("quick", ())),
        tests=tuple(read.pop("tests")),
        broker=read.pop("broker", {}),
        left_out=dict(_by_test(read.pop("left_out", {}))),
        expected={side: {} for side in SIDES},
    )
    for outcome in (Outcome.FAILED, Outcome.SKIPPED):
        for whose, reasons in read.pop(outcome, {}).items():
            for side in SIDES if whose == "both" else [whose]:
                found.expected[side].update({test: Expected(outcome, why) for test, why in _by_test(reasons)})
    if read:
        raise ValueError(f"{name}.toml: nobody knows {', '.join(read)}")
    return found


def _by_test(reasons: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    return ((test, reason) for reason, tests in reasons.items() for test in tests)
