"""Records in, acknowledgements out: batches, the queues they wait in, and a stream to each leader."""
