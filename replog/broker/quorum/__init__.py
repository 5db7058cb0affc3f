"""The metadata quorum on this node: its driver, its log and snapshots, its peers, and what is committed."""
