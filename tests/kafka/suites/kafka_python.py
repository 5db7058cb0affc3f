"""The integration tests of kafka-python, from its source distribution.

That leaves out two modules of the tests: the package itself, and the one that starts brokers.  With a broker that runs already
nothing is wanted of the latter but that it can be imported and told where that broker is.
"""

from __future__ import annotations

import re
import sys
import tarfile
from pathlib import Path

from suites.client_suite import Outcome, Ran, made_once, make_step, run_limited

VERSION = "3.0.12"
BROKER_VERSION = "4.1.1"

_SERVICE = """\
class ExternalService:
    def __init__(self, host, port):
        pass

    def __getattr__(self, name):
        return lambda *args, **kwargs: True


class SpawnedService:
    def __init__(self, *args, **kwargs):
        raise NotImplementedError("these tests start no broker")
"""
_PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-o",
    "addopts=",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-p",
    "no:asyncio",
)
_SUMMARY = re.compile(r"^=+ .*\b1 (passed|skipped|failed|error)\b", re.MULTILINE)


class KafkaPython:
    """The unpacked source; it brings the client that it tests."""

    def prepare(self) -> None:
        """Unpacks the source."""
        self._folder()

    def names(self) -> frozenset[str]:
        """Returns what pytest collects, without the folder."""
        command = [*_PYTEST, "--collect-only", "-q", "test/integration"]
        told = make_step(command, self._folder(), {"KAFKA_VERSION": BROKER_VERSION, **self._environment()})
        return frozenset(re.findall(r"^test/integration/(\S+::\S.*)$", told, re.MULTILINE))

    def run(self, test: str, servers: str, folder: Path, limit_s: float) -> Ran:
        """Runs one test, with one of the brokers."""
        environment = {
            **self._environment(),
            "KAFKA_VERSION": BROKER_VERSION,
            "KAFKA_URI": f"PLAINTEXT://{servers.split(',', maxsplit=1)[0]}",
            "KAFKA_ROOT": str(folder),
        }
        command = [*_PYTEST, "-o", "log_level=INFO", "-rA", f"test/integration/{test}"]
        ended = run_limited(command, self._folder(), environment, limit_s)
        found = _SUMMARY.search(ended.text)
        told = found[1] if found and ended.code == 0 else "failed"
        return Ran({"passed": Outcome.PASSED, "skipped": Outcome.SKIPPED}.get(told, Outcome.FAILED), ended.text)

    def _environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self._folder()), "PYTHONDONTWRITEBYTECODE": "1"}

    @staticmethod
    def _folder() -> Path:
        return made_once(f"kafka-python-{VERSION}", _make) / f"kafka_python-{VERSION}"


def _make(folder: Path) -> None:
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", ".")
    make_step([*pip, f"kafka-python=={VERSION}"], folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
    tests = folder / f"kafka_python-{VERSION}" / "test"
    (tests / "__init__.py").touch()
    (tests / "service.py").write_text(_SERVICE)
