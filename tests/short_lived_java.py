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


def java_options(temporary: Path, inherited: str = "") -> str:
    """Returns the value of the variable: what was in it goes behind, and so has the last word."""
    return f'{SHORT_LIVED} -Djava.io.tmpdir="{temporary}" {inherited}'.rstrip()
