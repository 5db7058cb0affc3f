"""Says who may do what: principals, the entries of access control lists, and the decision."""
