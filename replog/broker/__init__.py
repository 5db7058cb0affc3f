"""A node in a process: the drivers that run the cores, and everything between them and the network, disk and clock."""
