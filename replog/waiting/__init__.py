"""What waits: deadlines, bytes that are held, answers until they are read, and until the log that they tell of has committed."""
