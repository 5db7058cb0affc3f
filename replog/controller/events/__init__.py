"""The order of events: the queue, answers that wait for commits, and how far the metadata log is."""
