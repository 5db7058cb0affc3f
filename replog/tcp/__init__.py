"""TCP connections of the port for clients: what Kafka's protocol and our own streams share."""
