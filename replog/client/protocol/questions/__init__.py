"""Each question of a client, in Kafka's messages."""
