"""How nodes meet over TCP: a connection for each stream between two of them."""
