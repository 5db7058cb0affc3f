"""Replication of one partition: pure state machines of its leader and of a follower, and their common parts.

`leader.Leader` and `follower.Follower` take messages and return effects (`messages`); `fetch_check` is the leader's
half of log truncation; `fetch_positions` knows who reads a partition, and what each was told.
"""
