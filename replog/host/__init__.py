"""The machine and the interpreter that a process runs in: its memory, its identity, what is installed."""
