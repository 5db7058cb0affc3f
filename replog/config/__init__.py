"""The server configuration: every key with its kind, checks and page, to start, describe or document a node."""
