"""The metadata of a node's files or of a running one, as trees, and the language to look into them."""
