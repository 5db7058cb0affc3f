"""Builds the optional compiled codec; everything else is in pyproject.toml.

Without a C compiler (or with ``REPLOG_PURE=1``) the install succeeds and the pure-Python twin is used.
"""

import os

from setuptools import Extension, setup

COMPILED = (
    "replog.records._codec",
    "replog.records._compaction",
    "replog.records._scan",
    "replog.spark.json_decoder._compiled",
)


def extensions() -> list[Extension]:
    """The Cython accelerators, marked optional so that a missing compiler is no error."""
    if os.environ.get("REPLOG_PURE") == "1":
        return []
    from Cython.Build import cythonize

    options = ["-g0"]  # tables for a debugger, which nobody reads, are most of such a module
    modules = [
        Extension(name, [f"{name.replace('.', '/')}.pyx"], optional=True, extra_compile_args=options)
        for name in COMPILED
    ]
    return list(cythonize(modules, compiler_directives={"language_level": "3"}))


# a module takes ten seconds to compile: side by side
setup(ext_modules=extensions(), options={"build_ext": {"parallel": len(COMPILED)}})
