"""The requests of clients and followers to a node: the calls, the streams, and the paths of a produce and a fetch."""
