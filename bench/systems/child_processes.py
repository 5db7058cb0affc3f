"""Programs that the bench starts and that must not outlive it."""

from __future__ import annotations

import shutil


def dying_with_us(*command: str) -> list[str]:
    """Returns a command that the kernel ends with this process, also when this one is killed; where there is `setpriv`."""
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), *command]
