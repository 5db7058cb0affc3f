"""Java as tests want it: each process lives for seconds, and leaves no files behind in the system's temporary folder.

The options reach every Java that a test starts (Spark, Kafka, their tools and clients) by the variable that its launcher
reads, which says so in one line of stderr.  What a command line says itself wins.
"""

from __future__ import annotations

from pathlib import Path

VARIABLE = "JDK_JAVA_OPTIONS"
NOTE = f"NOTE: Picked up {VARIABLE}"
"""How the line on stderr begins."""

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:-UsePerfData"
"""Half of what a JVM costs in its first minute is compiling for the hours to come; the last option is about a file in /tmp."""


MARK = "started-"
"""How the empty files begin that JVMs leave in their temporary folder, one each: scripts start them, whom nobody sees."""


def java_options(temporary: Path, inherited: str = "") -> str:
    """Returns the value of the variable: what was in it goes behind, and so has the last word."""
    mark = f'-Xlog:os=error:file="{temporary}/{MARK}%p":none:filecount=0'  # a log of what is never said
    return f'{SHORT_LIVED} {mark} -Djava.io.tmpdir="{temporary}" {inherited}'.rstrip()


def started_count(temporary: Path) -> int:
    """Returns how many JVMs have been started with this folder."""
    return sum(1 for _ in temporary.glob(f"{MARK}*"))
