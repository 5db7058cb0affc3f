"""Work for the disk in threads: fsyncs in groups, cold reads, write-backs.  Knows logs, but no replicas."""
