"""Log directories: many logs under one lock and one identity, their checkpoints, moves and deletions."""
