"""Questions and orders of an operator, and what the answers say of the health of a cluster."""
