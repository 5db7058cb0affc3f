"""Builds the optional compiled codec; everything else is in pyproject.toml.

Without a C compiler (or with ``REPLOG_PURE=1``) the install succeeds and the pure-Python twin is used.
"""

import os

from setuptools import Extension, setup


def extensions() -> list[Extension]:
    """The Cython accelerator of ``replog.records``, marked optional so that a missing compiler is no error."""
    if os.environ.get("REPLOG_PURE") == "1":
        return []
    from Cython.Build import cythonize

    codec = Extension("replog.records._codec", ["replog/records/_codec.pyx"], optional=True)
    return list(cythonize([codec], compiler_directives={"language_level": "3"}))


setup(ext_modules=extensions())
