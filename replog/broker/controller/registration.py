"""Makes a controller process known to the cluster: where it listens, and which feature levels it can work with."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from replog.broker.controller.channel import ControllerChannel
from replog.broker.tasks import watched_task
from replog.controller.requests import RegisterController, RegisterControllerResponse
from replog.errors import InconsistentClusterIdError, ReplogError
from replog.waiting.task_ends import end_tasks

ATTEMPT_TIMEOUT_MS = 10_000
RETRY_DELAY_S = 1.0

_log = logging.getLogger(__name__)


class ControllerRegistrar:
    """Registers once per process, as soon as there is an active controller.

    Args:
        registration: The request that tells of this controller.
        channel: The way to the active controller.
        on_failure: The function that is told when this node belongs to another cluster, or about a bug; the node stops
            then.
    """

    def __init__(
        self,
        registration: RegisterController,
        channel: ControllerChannel,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._registration = registration
        self._channel = channel
        self._on_failure = on_failure
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to try to register."""
        self._task = watched_task(self._run(), name="register-controller", on_failure=self._on_failure)

    async def stop(self) -> None:
        """Ends the attempts."""
        await end_tasks(self._task)

    async def _run(self) -> None:
        problem = ""
        while True:
            try:
                await self._channel.send(self._registration, RegisterControllerResponse, timeout_ms=ATTEMPT_TIMEOUT_MS)
            except InconsistentClusterIdError:
                raise
            except ReplogError as error:
                if str(error) != problem:
                    _log.info("this controller is not registered yet: %s", error)
                problem = str(error)
                await asyncio.sleep(RETRY_DELAY_S)
            else:
                return
