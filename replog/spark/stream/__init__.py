"""Topics as streaming DataFrames: offsets that Spark keeps, admission, bounds that are watched, the reader."""
