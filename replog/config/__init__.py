"""The server configuration: every key with its kind, checks and page, for whoever starts, describes or documents a node."""
