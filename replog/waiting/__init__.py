"""Waiting: deadlines, bounded bytes, answers until they are read, and answers until their log has committed."""
