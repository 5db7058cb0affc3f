"""Faults on real processes under a steady load, and what clients saw of them.

`run` is the order of events; `faults` says what can happen to a cluster, `load` what clients do meanwhile, `outcome` what
came of each fault, and `report` writes it down.
"""
