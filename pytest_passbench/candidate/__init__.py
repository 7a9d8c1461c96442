"""The layout of a candidate directory, and the audit of its source. Executes nothing."""
