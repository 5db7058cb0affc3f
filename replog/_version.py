"""The version, in one place; `pyproject.toml` and `replog.__version__` read it."""

__version__ = "0.1.0"
