"""One module per performance question; each has a `SCENARIO`."""
