"""How the messages of calls become bytes, which both ends send alike; the other codecs stand beside the end that has them."""

from __future__ import annotations

from typing import Final

from replog.rpc.call_stream import decode_items, encode_items
from replog.rpc.tcp.wire import Codec, whole

CALLS: Final = Codec(whole(encode_items), decode_items)
