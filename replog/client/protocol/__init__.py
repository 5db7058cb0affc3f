"""How a client reaches brokers: Kafka's protocol, and our own APIs in its framing where a broker offers them."""
