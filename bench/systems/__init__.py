"""Systems under test: ours and its peers, each behind the operations that scenarios ask for."""
