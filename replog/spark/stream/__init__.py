"""Topics as streaming DataFrames: offsets that Spark keeps, admission, places that are watched, the reader."""
