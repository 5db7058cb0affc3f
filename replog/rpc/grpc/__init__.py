"""How nodes reach each other: streams and calls over gRPC."""
