"""What is called how, in writes that are there once.

::

    spark/query:7f0c...            the driver of a writer: whoever takes this transactional id over fences the one before
    spark/query:7f0c.../12/a0.../5 one attempt of a task: writer, version, run, and Spark's number of the attempt

A run is one plan of a write, with a random name, and Spark numbers the attempts of an application: so no transactional id is
used twice, and a task that was held up before it began can take nothing over from one that has been decided for.
"""

from __future__ import annotations

import re
import uuid
from typing import Final

from msgspec import Struct

UNNAMED: Final = "save:"
_KINDS: Final = ("query:", "app:", "write:", UNNAMED)
_PREFIX: Final = "spark/"
_ATTEMPT: Final = re.compile(r"spark/([^/]+)/([0-9]{1,19})/([0-9a-f]{32})/([0-9]{1,19})\Z", re.ASCII)


class Version(Struct, frozen=True):
    """One write of a writer, which is to be there once.

    Attributes:
        writer: The name of the writer.
        number: The number of the write: a writer's numbers go up.
    """

    writer: str
    number: int

    def __str__(self) -> str:
        return f"version {self.number} of {self.writer}"


class AttemptName(Struct, frozen=True):
    """One attempt of one task, which writes in a transaction of its own.

    Attributes:
        version: What it writes.
        run: The random name of the plan that it is from.
        number: Spark's number of the attempt, of which there is one in an application.
    """

    version: Version
    run: str
    number: int

    @property
    def transactional_id(self) -> str:
        """The name of its transaction."""
        return f"{_PREFIX}{self.version.writer}/{self.version.number}/{self.run}/{self.number}"


def query_writer(query_id: str) -> str:
    """Returns the writer that a stream is: its versions are its micro-batches."""
    return f"query:{query_id}"


def application_writer(name: str) -> str:
    """Returns the writer that an application is which numbers its writes itself."""
    return f"app:{name}"


def single_writer(name: str) -> str:
    """Returns a writer of one version, which has a name."""
    return f"write:{name}"


def unnamed_writer() -> str:
    """Returns a writer of one version that nobody writes again."""
    return f"{UNNAMED}{new_run()}"


def writer_named(text: str) -> str:
    """Returns the writer that somebody means: a whole name of one, or the id of a query."""
    return text if text.startswith(_KINDS) else query_writer(text)


def new_run() -> str:
    """Returns a name for a plan that no other has."""
    return uuid.uuid4().hex


def driver_id(writer: str) -> str:
    """Returns the transactional id of the driver of a writer."""
    return f"{_PREFIX}{writer}"


def attempts_pattern(writer: str) -> str:
    """Returns the regular expression of the transactional ids of a writer's attempts."""
    return f"{_PREFIX}{re.escape(writer)}/.*"


def writer_of(transactional_id: str) -> str | None:
    """Returns the writer that a transactional id is of, as an attempt's or its driver's; None: it is of something else."""
    attempt = attempt_of(transactional_id)
    if attempt is not None:
        return attempt.version.writer
    writer = transactional_id.removeprefix(_PREFIX)
    return writer if writer != transactional_id and writer.startswith(_KINDS) and "/" not in writer else None


def attempt_of(transactional_id: str) -> AttemptName | None:
    """Returns the attempt that a transactional id is of; None: it is of something else."""
    found = _ATTEMPT.match(transactional_id)
    if found is None:
        return None
    return AttemptName(Version(found[1], int(found[2])), found[3], int(found[4]))
