"""Records on the command line: what reads topics for commands, how records are printed, and what a line says of one."""
