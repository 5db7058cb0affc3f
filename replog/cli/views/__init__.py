"""What commands show of a cluster in words and tables."""
