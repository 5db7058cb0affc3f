"""Topics as streaming DataFrames: offsets that Spark keeps, admission, positions that are watched, the reader."""
