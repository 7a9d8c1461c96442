"""Data that crosses from a candidate to everybody else: constants, traced graphs and launch plans."""
