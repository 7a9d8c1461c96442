"""A board of several runs: which of them can be compared, their rows, and the files that show them."""
