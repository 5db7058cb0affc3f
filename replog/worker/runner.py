"""`replog.run`: a worker as a program, with the signals of one."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Never

from replog.client.types import K, V
from replog.codecs import ValueCodec
from replog.worker.handlers import Handler
from replog.worker.worker import Worker

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(
    handler: Handler[K, V],
    topics: str | Iterable[str],
    *misplaced: Never,
    group: str,
    key: type[K] | ValueCodec[K] = bytes,  # type: ignore[assignment]  # which is K where nobody says another one
    value: type[V] | ValueCodec[V] = bytes,  # type: ignore[assignment]  # likewise
    **settings: Any,
) -> None:
    """Hands the records of topics to `handler` until the process is told to end (SIGTERM, or Ctrl-C).

    Then handlers that run have `drain_timeout_ms`, what is done is committed, and the call returns.  A second signal ends it at once.

    Args:
        handler: What handles a record; `async` or not.
        topics: The topics.
        group: The name of the group; workers with the same one share the partitions.
        key, value: What keys and values are: bytes, or what `replog.codecs` decodes them to.
        settings: Further arguments of `Worker`, such as `bootstrap_servers`, `concurrency` or `dead_letter_topic`.

    Raises:
        KeyboardInterrupt: A second signal came.
        ReplogError: As `Worker.run`.
    """
    asyncio.run(_run((handler, topics, *misplaced), {**settings, "group": group, "key": key, "value": value}))


async def _run(given: tuple[Any, ...], settings: dict[str, Any]) -> None:
    worker = Worker[Any, Any](*given, **settings)
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    signals_count = 0

    def told() -> None:
        nonlocal signals_count
        signals_count += 1
        if signals_count == 1:
            worker.stop()
        elif task is not None:
            task.cancel()

    for number in _SIGNALS:
        with suppress(ValueError, RuntimeError, NotImplementedError):  # only the main thread hears of signals
            loop.add_signal_handler(number, told)
    try:
        await worker.run()
    except asyncio.CancelledError:
        if signals_count > 1:
            raise KeyboardInterrupt from None
        raise
