"""The roles of a node, one file each, and what a candidate, a follower and a leader keep while they are one."""
