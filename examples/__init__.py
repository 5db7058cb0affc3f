"""Programs that use replog; `examples/README.md` says how to run them.  Not installed by pip."""
