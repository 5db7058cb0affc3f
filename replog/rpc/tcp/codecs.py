"""How messages become bytes that both ends send alike; the other codecs stand beside the end that has them."""

from __future__ import annotations

from typing import Final

from replog.rpc import quorum_codec
from replog.rpc.call_stream import decode_items, encode_items
from replog.rpc.tcp.wire import Codec, whole

QUORUM: Final = Codec(whole(quorum_codec.encode_quorum_message), quorum_codec.decode_quorum_message)
CALLS: Final = Codec(whole(encode_items), decode_items)
