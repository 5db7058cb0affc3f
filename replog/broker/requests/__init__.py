"""What clients and followers ask of a node: the calls, the streams, and the paths of a produce and a fetch."""
