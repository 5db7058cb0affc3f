"""TCP connections of the port for clients, shared by Kafka's protocol and our own streams."""
