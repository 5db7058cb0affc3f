"""Records out: what is read of each partition, and a stream to each leader that fetches ahead."""
