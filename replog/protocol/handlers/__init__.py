"""What a request of a Kafka client becomes here, and what of its answer goes back: one module a family of APIs."""
