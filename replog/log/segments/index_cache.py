"""Contents of sealed segments' index files, for all logs of the process, the longest unused one dropped first.

Small files are copied, larger ones mapped.  Why bounds: a map costs address space, page tables and, before Python 3.13, a
descriptor; a broker has tens of thousands of index files.  Why for the process: what is bounded is the process's.

Why a map cannot end the process with SIGBUS: an index file is mapped only when its segment is sealed, and such a file is
never written, cut or emptied again.  One that is made anew comes as another file by a rename, and readers that have the old
one mapped read on in it.
"""

from __future__ import annotations

import resource
import sys
import threading
from collections import OrderedDict
from typing import Final

COPY_BYTES_MAX: Final = 4096
"""Up to here a copy is cheaper than a map."""

COPIES_MAX: Final = 8192
DESCRIPTOR_SHARE: Final = 8
"""Maps take at most one in so many of the descriptors that the process may have."""


def maps_max() -> int:
    """Returns how many maps may be kept: before Python 3.13 each costs a descriptor."""
    if sys.version_info >= (3, 13):
        return 4096
    descriptors_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 256 if descriptors_max < 0 else max(1, min(256, descriptors_max // DESCRIPTOR_SHARE))


MAPS_MAX: Final = maps_max()


class IndexCache:
    """(owner, kind) -> the content of an index file.  May be used by several threads.

    Args:
        maps_max: Maps that are kept at most, from 1.
        copies_max: Copies of small files that are kept at most, from 1.
    """

    __slots__ = ("_copies", "_copies_max", "_lock", "_maps", "_maps_max")

    def __init__(self, maps_max: int = MAPS_MAX, copies_max: int = COPIES_MAX) -> None:
        self._maps: OrderedDict[tuple[object, str], memoryview] = OrderedDict()
        self._copies: OrderedDict[tuple[object, str], memoryview] = OrderedDict()
        self._maps_max = maps_max
        self._copies_max = copies_max
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._maps) + len(self._copies)

    def get(self, owner: object, kind: str) -> memoryview | None:
        """Returns the content and marks it as the latest used one; None: it is not here."""
        key = owner, kind
        with self._lock:
            for contents in (self._copies, self._maps):
                found = contents.get(key)
                if found is not None:
                    contents.move_to_end(key)
                    return found
        return None

    def put(self, owner: object, kind: str, content: memoryview) -> memoryview:
        """Keeps a map, or a copy of it; returns what is kept.  A dropped map stays valid for its users."""
        is_small = len(content) <= COPY_BYTES_MAX
        contents, count_max = (self._copies, self._copies_max) if is_small else (self._maps, self._maps_max)
        kept = memoryview(bytes(content)) if is_small else content
        with self._lock:
            contents[owner, kind] = kept
            if len(contents) > count_max:
                contents.popitem(last=False)
        return kept

    def drop(self, owner: object, kind: str) -> None:
        """Forgets a content, if it is here."""
        with self._lock:
            self._maps.pop((owner, kind), None)
            self._copies.pop((owner, kind), None)


INDEX_CACHE: Final = IndexCache()
"""The index cache of this process."""
