"""Codecs: what makes bytes of the keys and values of records, and the other way round (docs/RECORDS.md).

Clients use them, brokers never do: what stands in a log is bytes.
"""

from replog.codecs.chosen import codec_of
from replog.codecs.json_text import Json
from replog.codecs.value_codec import ValueCodec

__all__ = ["Json", "ValueCodec", "codec_of"]
