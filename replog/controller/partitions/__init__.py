"""What happens to one partition, as pure functions: where its replicas go, and how it changes."""
