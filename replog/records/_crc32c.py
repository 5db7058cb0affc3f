"""CRC-32C from the `crc32c` package, without what that package loads to know its own version.

Why: its `__init__` imports `importlib.metadata` and with it email, zipfile and sockets, which was a third of the time to
import a log.  The compiled function stands in a module of its own inside the package, and is loaded alone.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType
from typing import Final

_MODULE: Final = "crc32c._crc32c"


def _load_alone() -> ModuleType | None:
    """Loads the module under its own name, so that the package finds it loaded; None where it looks different."""
    if _MODULE in sys.modules:
        return sys.modules[_MODULE]
    package = PathFinder.find_spec("crc32c")
    if package is None or package.submodule_search_locations is None:
        return None
    spec = PathFinder.find_spec(_MODULE, list(package.submodule_search_locations))
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_MODULE] = module
    return module


_module = _load_alone()
if _module is None:
    import crc32c as _package

    _module = _package
crc32c = _module.crc32c

__all__ = ["crc32c"]
