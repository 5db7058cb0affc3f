"""The replicas of this broker: led, followed, created, moved, flushed, cleaned and retired as the metadata says."""
