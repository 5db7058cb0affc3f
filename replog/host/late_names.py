"""Names of a package that are loaded when they are first used, so that importing the package costs nearly nothing."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def late_names(
    package: str, homes: Mapping[str, str], more: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the `__getattr__` and the `__dir__` of a package.

    Args:
        package: The name of the package.
        homes: The module of each name that is loaded late; "": the name is that of a module in the package.
        more: The names that are there already, which `dir` tells as well.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        is_collecting = gc.isenabled()
        gc.disable()  # modules stay: looks at them would find nothing, for a twentieth of the time that loading takes
        try:
            return getattr(import_module(home), name) if home else import_module(f"{package}.{name}")
        finally:
            if is_collecting:
                gc.enable()

    def names() -> list[str]:
        return sorted({*homes, *more})

    return load, names
