"""The same clients without async, and the thread that their event loop runs in."""
