"""Coordinators: state that lives in the partitions of an internal topic, each kept by the partition's leader."""
