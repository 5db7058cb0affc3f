"""One node as a whole: what it takes hold of, the parts it is assembled from, its start and its end."""
