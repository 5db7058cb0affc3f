"""Reading one log: by offset, by time, from the page cache, from memory, in another thread."""
