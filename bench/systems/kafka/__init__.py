"""Apache Kafka as a peer: its nodes, its clients in processes of their own, and what scenarios ask of them."""
