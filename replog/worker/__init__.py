"""Programs that handle the records of topics, one after the other: `replog.run` and `Worker` (docs/WORKERS.md)."""

from replog.worker.dead_letters import DeadLetter
from replog.worker.handlers import Handler
from replog.worker.observer import WorkerObserver
from replog.worker.results import Results
from replog.worker.runner import run
from replog.worker.worker import Worker

__all__ = ["DeadLetter", "Handler", "Results", "Worker", "WorkerObserver", "run"]
