"""Measurements: one file per performance question under `bench/scenarios`, peers side by side.

``python -m bench list`` shows the questions, ``python -m bench run NAME`` answers one.
"""
