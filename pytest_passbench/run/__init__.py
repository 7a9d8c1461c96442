"""A run and its results file: what is judged, what came in, how it is written, read, merged and repeated."""
