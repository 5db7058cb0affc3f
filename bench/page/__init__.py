"""Results as one page of HTML with charts, in a single file that needs nothing else."""
