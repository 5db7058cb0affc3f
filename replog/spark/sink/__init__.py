"""Writing: `df.write.format("replog")` and `writeStream.format("replog")`.

`schema` says what columns may be written, `columns` makes records' columns of Arrow batches, `task` sends those of one task,
`outcome` is where the driver hears of all of them, `writer` is what Spark calls.
"""
