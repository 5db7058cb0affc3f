"""A broker process with a sampler: ``python -m bench.profiled_broker STATS_FILE --config FILE ...``.

SIGUSR1 starts the sampling anew, SIGUSR2 ends it and writes the file.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from bench.sampler import Sampler
from replog.broker.__main__ import main


def run(stats_file: Path, arguments: list[str]) -> int:
    """Runs a broker like `python -m replog.broker`."""
    sampler = Sampler()

    def finish() -> None:
        sampler.stop()
        unfinished = stats_file.with_suffix(".tmp")
        unfinished.write_text(json.dumps({"lines": sampler.lines, "functions": sampler.functions}), encoding="utf-8")
        unfinished.replace(stats_file)

    signal.signal(signal.SIGUSR1, lambda *_: sampler.start())
    signal.signal(signal.SIGUSR2, lambda *_: finish())
    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
