"""Options of the data source: what a user may write, checked before anything is asked of a broker.

Names and meanings are those of Spark's Kafka source, so that a job moves over by changing the format's name.  An option
that would be ignored is refused instead: a misspelled `endingOffsets` must not read a whole topic.

`table` has a row for each option, `foreign` one for each name that other connectors know, `parsers` and
`positions` read a value; a module for each kind of use (`reading`, `streaming`) makes them an object of checked values.
"""

from replog.spark.options.catalog import check_arrived, refuse_table
from replog.spark.options.reading import ReadOptions, TopicChoice, is_read, parse_read_options
from replog.spark.options.streaming import Limits, StreamOptions, parse_stream_options
from replog.spark.options.uses import Use

__all__ = [
    "Limits",
    "ReadOptions",
    "StreamOptions",
    "TopicChoice",
    "Use",
    "check_arrived",
    "is_read",
    "parse_read_options",
    "parse_stream_options",
    "refuse_table",
]
