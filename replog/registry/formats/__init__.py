"""What a schema is written in: how its text becomes a schema, and whether what one has written another one reads."""
