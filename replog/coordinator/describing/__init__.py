"""What people are told of groups, of whichever kind."""
