"""Step 6: four answers side by side, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from examples.demo.groups import GroupKey, Groups, GroupStats, counted, differing_rows
from examples.demo.ledger import ReadResult

ROWS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """Everything that was counted and computed.

    Attributes:
        rows: The number of rows of the source table.
        acknowledged: The number of rows that the producer got an offset for.
        conflicts: The number of offsets that were acknowledged for two rows.
        source, consumer, spark, stream: The groups, from the table, the consumer's records, a Spark DataFrame, and a Spark
            stream that came in parts.
        consumer_read, spark_read: The comparison of each reader with the acknowledgements.
    """

    rows: int
    acknowledged: int
    conflicts: int
    source: Groups
    consumer: Groups
    spark: Groups
    stream: Groups
    consumer_read: ReadResult
    spark_read: ReadResult

    @property
    def differing(self) -> list[GroupKey]:
        """Groups in which a reader's answer is not the source table's."""
        answers = (self.consumer, self.spark, self.stream)
        return sorted({key for answer in answers for key in differing_rows(self.source, answer)})

    @property
    def is_good(self) -> bool:
        return (
            self.acknowledged == self.rows
            and not self.conflicts
            and self.consumer_read.is_exact
            and self.spark_read.is_exact
            and counted(self.stream) == self.acknowledged
            and not self.differing
        )

    def verdict(self) -> str:
        """Returns the last line: counts, and whether the results are equal."""
        streamed = counted(self.stream)
        missed = self.acknowledged - streamed
        lost = max(self.consumer_read.lost, self.spark_read.lost, missed) + self.rows - self.acknowledged
        duplicated = max(self.consumer_read.duplicated, self.spark_read.duplicated, -missed) + self.conflicts
        altered = max(self.consumer_read.altered, self.spark_read.altered)
        return (
            f"{self.acknowledged:,} acknowledged, {self.consumer_read.read:,} read by the consumer, "
            f"{self.spark_read.read:,} read by Spark, {streamed:,} counted by a Spark stream, {lost:,} lost, {duplicated:,} duplicated"
            f"{f', {altered:,} altered' if altered else ''}; "
            f"{'results equal' if not self.differing else f'{len(self.differing)} results differ'}"
        )


def result_table(outcome: DemoOutcome) -> Table:
    """Makes a table of the groups with most flights; all that differ come first."""
    table = Table(title="flights and mean departure delay in minutes", title_justify="left", header_style="bold")
    table.add_column("carrier")
    table.add_column("origin")
    for name in ("flights", "source", "consumer", "Spark", "stream"):
        table.add_column(name, justify="right")
    table.add_column("")
    differing = set(outcome.differing)
    keys = sorted(outcome.source.keys() | differing, key=lambda key: (key not in differing, -_flights(outcome, key)))
    for key in keys[:ROWS_SHOWN]:
        groups = (outcome.source, outcome.consumer, outcome.spark, outcome.stream)
        means = (_shown(answer.get(key)) for answer in groups)
        table.add_row(*key, f"{_flights(outcome, key):,}", *means, "differs" if key in differing else "equal")
    if len(keys) > ROWS_SHOWN:
        table.caption = f"the largest {ROWS_SHOWN} of {len(keys)} groups; all were compared"
        table.caption_justify = "left"
    return table


def _flights(outcome: DemoOutcome, key: GroupKey) -> int:
    stats = outcome.source.get(key)
    return stats.flights if stats is not None else 0


def _shown(stats: GroupStats | None) -> str:
    if stats is None:
        return "missing"
    mean = stats.mean_delay_minutes
    return "none" if mean is None else f"{mean:.4f}"
