"""`make campaign MINUTES=60`: everything that finds something new with more time, with fresh seeds, for that long.

::

    python -m tests.campaign run --minutes 60            # all kinds, round robin, two jobs side by side
    python -m tests.campaign run --only chaos,group      # kinds whose name contains one of these
    python -m tests.campaign list                        # the kinds
    python -m tests.campaign prove                       # runs the tests that are marked `campaign` and have changed
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.campaign import proven
from tests.campaign.kinds import PYTEST, Kind, kinds
from tests.campaign.rounds import Campaign


def main() -> int:
    """The command line; returns the exit status: 1 with a find."""
    options = _parse()
    if options.command == "prove":
        return prove(options.files)
    chosen = _chosen(options.only)
    if options.command == "list":
        for kind in chosen:
            print(f"{kind.name:<36} {' '.join(kind.command)}")
        return 0
    return _run(chosen, options)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run, listed = commands.add_parser("run", help="search"), commands.add_parser("list", help="name the kinds")
    for command in (run, listed):
        command.add_argument("--only", default="", help="kinds whose name contains one of these, with commas between")
    run.add_argument("--minutes", type=float, default=60.0)
    run.add_argument("--processes", type=int, default=2, help="how many jobs side by side")
    run.add_argument("--seed", type=int, default=None, help="decides all that is drawn; default: another one each time")
    run.add_argument("--finds", type=Path, default=Path("campaign-finds"), help="folder for what is found")
    command = commands.add_parser("prove", help="run the marked tests of files that have changed")
    command.add_argument("files", nargs="*", help="these instead")
    return parser.parse_args()


def _chosen(only: str) -> list[Kind]:
    words = [word.strip() for word in only.split(",") if word.strip()]
    chosen = [kind for kind in kinds() if not words or any(word in kind.name for word in words)]
    if not chosen:
        sys.exit(f"no kind has a name with {only}: python -m tests.campaign list")
    return chosen


def _run(chosen: list[Kind], options: argparse.Namespace) -> int:
    seed = random.SystemRandom().randrange(2**31) if options.seed is None else options.seed
    print(f"a campaign of {options.minutes:g} minutes with {len(chosen)} kinds, --seed {seed}", flush=True)
    finds = options.finds / time.strftime("%Y%m%d-%H%M%S")
    campaign = Campaign(
        chosen,
        duration_s=60 * options.minutes,
        processes=options.processes,
        finds=finds,
        seed=seed,
        say=lambda text: print(text, flush=True),
    )
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, campaign.stop)
    campaign.run()
    print(campaign.summary())
    return 1 if campaign.finds else 0


def prove(files: list[str]) -> int:
    """Runs the marked tests of files, and writes down those that pass; returns 1 if some do not.

    Args:
        files: Paths from the root; empty: all that are not proven as they stand.
    """
    failed = []
    for file in files or [each for each in proven.campaign_files() if not proven.is_proven(each)]:
        print(f"==== {file}", flush=True)
        if subprocess.run([*PYTEST, "-m", "campaign", file], cwd=proven.ROOT, check=False).returncode == 0:
            proven.keep([file])
        else:
            failed.append(file)
    if failed:
        print(f"not proven: {' '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
