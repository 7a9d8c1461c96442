"""A run and its results file: the records that came in, and how they are written, read, merged and repeated."""
