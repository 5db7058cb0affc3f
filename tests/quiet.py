"""The one way to let time pass in a test that does not wait for anything."""

from __future__ import annotations

import asyncio


async def quiet_for(seconds: float) -> None:
    """Gives what must not happen the time to happen.

    Not for what should happen: that is waited for, as a condition with a deadline.  So a slow machine proves less here, and
    fails for no reason of its own.
    """
    await asyncio.sleep(seconds)
