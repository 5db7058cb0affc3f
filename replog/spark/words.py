"""The words in which Spark's users are told of the troubles of a read."""

from __future__ import annotations

from typing import Final

from replog.client.ranges.offset_range import RangeWords

WORDS: Final = RangeWords(
    planned="the DataFrame was made",
    after_loss='Make the DataFrame anew, or set failOnDataLoss to "false" to read what is left.',
    wait_longer="wait longer with the option kafkaConsumer.pollTimeoutMs",
    reachable_from="where Spark runs",
)
