"""What does it cost to decide whether somebody may read a topic?"""

from __future__ import annotations

from collections.abc import Sequence

from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, System, WrongResultError
from replog.access.entries import AclEntry, AclOperation, PatternType, Permission, ResourceKind
from replog.access.principal import Principal
from replog.access.standard import CACHED_MAX, StandardAuthorizer

ENTRIES = 10_000
PREFIXES = (1, 16, 240)
CHECKS = CACHED_MAX
HOST = "10.0.0.1"
USER = Principal("alice")
CHECK_CPU_US = Metric("check_cpu_us", "µs")


class Authorizing(System):
    """Our authorizer, in the measuring process."""

    name = "replog"


class AclChecksScenario(Scenario[Authorizing]):
    """Asks about names that begin with so many stored prefixes, first all of them once, then all of them again.

    All entries are of the principal that asks, so that all of them are in one table.

    Args:
        entries: the entries in force.
        checks: names, at most as many as answers are remembered.
    """

    name = "acl-checks"
    question = "What does it cost to decide by 10,000 entries of an access control list?"

    def __init__(self, entries: int = ENTRIES, checks: int = CHECKS) -> None:
        self._entries = entries
        self._checks = checks

    def systems(self) -> Sequence[Authorizing]:
        return [Authorizing()]

    def cases(self) -> Sequence[Params]:
        return [
            {"entries": self._entries, "prefixes_of_name": prefixes, "answers": answers}
            for prefixes in PREFIXES
            for answers in ("looked-up", "remembered")
        ]

    def measure(self, system: Authorizing, params: Params, meter: Meter) -> Measured:
        prefixes = int(params["prefixes_of_name"])
        authorizer = StandardAuthorizer()
        nested = [_entry("a" * length) for length in range(1, prefixes + 1)]
        others = [_entry(f"b{number}") for number in range(self._entries - prefixes)]
        authorizer.update((), [*nested, *others])
        names = [f"{'a' * prefixes}-{number}" for number in range(self._checks)]
        if params["answers"] == "remembered":
            _count_allowed(authorizer, names)
        with meter.timed() as timing:
            allowed_count = _count_allowed(authorizer, names)
        if allowed_count != self._checks or authorizer.allows(USER, HOST, AclOperation.READ, ResourceKind.TOPIC, "c"):
            raise WrongResultError(f"{system.name} allows {allowed_count} of {self._checks}")
        return {CHECK_CPU_US: timing.cpu_s / self._checks * 1e6}


def _entry(name: str) -> AclEntry:
    return AclEntry(ResourceKind.TOPIC, name, PatternType.PREFIXED, str(USER), "*", AclOperation.READ, Permission.ALLOW)


def _count_allowed(authorizer: StandardAuthorizer, names: Sequence[str]) -> int:
    return sum(authorizer.allows(USER, HOST, AclOperation.READ, ResourceKind.TOPIC, name) for name in names)


SCENARIO = AclChecksScenario()
