"""``python -m examples.demo``: the whole system at work in a minute, from the root of a checkout; `make demo` runs it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from replog.cli.errors import FAILED, INTERRUPTED, READER_GONE, report, tell
from replog.cli.main import end_process
from replog.cli.terminal import standard_streams
from replog.errors import ReplogError
from replog.host.extras import install_command
from replog.host.process_memory import tune_process

NODES_MIN = 3
NODES_MAX = 9


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo.

    Args:
        arguments: The arguments without the program's name; None: those of the process.

    Returns:
        The exit status, as of the `replog` command: 1 when a single record differs from what was acknowledged.
    """
    options = _parser().parse_args(arguments)
    tune_process()
    try:
        from examples.demo.run import run_demo

        return run_demo(is_fast=options.fast, keep=options.keep, nodes=options.nodes)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("rich"):
            raise
        tell(f"error: the demo needs {error.name}: {install_command('demo')}")
        return FAILED
    except standard_streams.ReaderGoneError:
        standard_streams.discard_unwritten()
        return READER_GONE
    except (ReplogError, OSError) as error:
        standard_streams.discard_unwritten()
        return report(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Start brokers, write a year of flights, kill a leader on the way, and read everything back, also with "
        "Spark.  Exit status 1 when a single record differs from what was acknowledged.",
    )
    parser.add_argument("--fast", action="store_true", help="a tenth of the rows")
    parser.add_argument("--keep", action="store_true", help="keep the log directories, and print where")
    parser.add_argument(
        "--nodes",
        type=int,
        choices=range(NODES_MIN, NODES_MAX + 1),
        default=NODES_MIN,
        metavar="N",
        help=f"broker processes, {NODES_MIN} to {NODES_MAX} (default: {NODES_MIN})",
    )
    return parser


if __name__ == "__main__":
    standard_streams.prepare()
    end_process(main())
