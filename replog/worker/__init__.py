"""Programs that handle the records of topics, one after the other: `replog.run` and `Worker` (docs/WORKERS.md)."""

from replog.worker.dead_letters import DeadLetter
from replog.worker.runner import run
from replog.worker.worker import Handler, Worker

__all__ = ["DeadLetter", "Handler", "Worker", "run"]
