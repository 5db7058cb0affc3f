"""The tests of franz-go, a client in Go: `pkg/kgo`.  (Those of `pkg/kadm` want no broker.)"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from go_programs import ENVIRONMENT, QUICK_TO_BUILD
from suites.client_suite import Outcome, Ran, made_once, make_step, required, run_limited

MODULE = "github.com/twmb/franz-go"
VERSION = "v1.22.2"

_WANTS_A_BROKER = re.compile(r"newTestClient|newTestConsumer|getSeedBrokers|tmpTopic|tmpGroup|adm\(\)")
_SETTINGS = {
    "KGO_TEST_RF": "1",
    "KGO_TEST_RECORDS": "10000",
    "KGO_TEST_MAX_TOPIC_PARTS": "3",
    "KGO_LOG_LEVEL": "none",
}


class FranzGo:
    """The compiled tests, and their source beside them to look for names in."""

    def prepare(self) -> None:
        """Builds the tests."""
        self._folder()

    def names(self) -> frozenset[str]:
        """Returns the tests whose source mentions a client or a topic."""
        texts = [path.read_text() for path in self._folder().glob("*_test.go")]
        functions = [function for text in texts for function in re.split(r"^func ", text, flags=re.MULTILINE)]
        return frozenset(
            found[1]
            for function in functions
            if (found := re.match(r"(Test\w+)\(", function)) and _WANTS_A_BROKER.search(function)
        )

    def run(self, test: str, servers: str, folder: Path, limit_s: float) -> Ran:
        """Runs one test with all that it divides itself into."""
        command = [str(self._folder() / "kgo.test"), "-test.v", "-test.run", f"^{test}$"]
        ended = run_limited(command, folder, {"KGO_SEEDS": servers, **_SETTINGS}, limit_s)
        if ended.code != 0:
            return Ran(Outcome.FAILED, ended.text)
        is_skipped = f"--- SKIP: {test} " in ended.text
        return Ran(Outcome.SKIPPED if is_skipped else Outcome.PASSED, ended.text)

    @staticmethod
    def _folder() -> Path:
        return made_once(f"franz-go-{VERSION}", _make)


def _make(folder: Path) -> None:
    go = required("go")
    told = make_step([go, "mod", "download", "-json", f"{MODULE}@{VERSION}"], folder, ENVIRONMENT)
    source = Path(json.loads(told[told.index("{") :])["Dir"])
    make_step([go, "test", "-c", *QUICK_TO_BUILD, "-o", str(folder / "kgo.test"), "./pkg/kgo"], source, ENVIRONMENT)
    for path in (source / "pkg" / "kgo").glob("*_test.go"):
        shutil.copyfile(path, folder / path.name)
