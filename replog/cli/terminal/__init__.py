"""The terminal of a command: its streams, its width, and Ctrl-C."""
