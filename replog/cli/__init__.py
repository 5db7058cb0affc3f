"""The `replog` command: one file per group of commands, each loading what it needs only when it runs."""
