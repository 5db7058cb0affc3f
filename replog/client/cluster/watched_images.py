"""What one broker says of the metadata, step by step, put together to whole images."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

from msgspec import Struct

from replog.client.cluster.image import ClusterImage
from replog.client.protocol.seam import Connection
from replog.rpc.metadata_messages import MetadataUpdate, WatchRequest
from replog.rpc.transport import ConnectionLostError


class WatchedImage(Struct, frozen=True):
    """What one broker's metadata led to: `image` may be newer than what that broker knows.

    Attributes:
        knows_controller: Whether that broker knows of an active controller.
    """

    image: ClusterImage
    knows_controller: bool


async def watched_images(
    connection: Connection, known: ClusterImage, limit_ms: int, *, follow: bool = True
) -> AsyncGenerator[WatchedImage]:
    """Yields the images of a watch on one broker, one for each whole update.

    Args:
        connection: The connection to that broker.
        known: The image to start from.
        limit_ms: The longest silence, in ms, up to the end of the first image, and while the broker knows of no
            controller; otherwise silence means that nothing changes.
        follow: Whether to go on after the first image.

    Raises:
        ConnectionLostError: Nothing came within the limit, or the connection was lost.
    """
    updates = connection.watch_metadata(WatchRequest(known.shared_offset, follow))
    problem = "sends no metadata"
    try:
        steps: list[MetadataUpdate] = []
        limit_s: float | None = limit_ms / 1000
        while True:
            async with asyncio.timeout(limit_s):
                steps.append(await anext(updates))
            if steps[-1].is_last:
                known, knows_controller = known.after(steps), steps[-1].controller_id >= 0
                yield WatchedImage(known, knows_controller)
                steps, limit_s = [], None if knows_controller else limit_ms / 1000
                problem = "ended the metadata watch" if knows_controller else "knows of no controller"
    except (TimeoutError, StopAsyncIteration):
        raise ConnectionLostError(f"{connection.address} {problem}") from None
    finally:
        await _close_iterator(updates)


async def _close_iterator(updates: AsyncIterator[MetadataUpdate]) -> None:
    close = getattr(updates, "aclose", None)
    if close is not None:
        await close()
