"""Builds the optional compiled codec; everything else is in pyproject.toml.

Without a C compiler (or with ``REPLOG_PURE=1``) the install succeeds and the pure-Python twin is used.
"""

import os

from setuptools import Extension, setup


def extensions() -> list[Extension]:
    """The Cython accelerators of ``replog.records``, marked optional so that a missing compiler is no error."""
    if os.environ.get("REPLOG_PURE") == "1":
        return []
    from Cython.Build import cythonize

    sources = {name: f"replog/records/{name}.pyx" for name in ("_codec", "_compaction", "_json_values", "_scan")}
    modules = [Extension(f"replog.records.{name}", [path], optional=True) for name, path in sources.items()]
    return list(cythonize(modules, compiler_directives={"language_level": "3"}))


setup(ext_modules=extensions())
