"""Faults of what brokers as processes run on: links that are cut, disks that are full or lose their power."""
