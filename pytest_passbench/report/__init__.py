"""The tables and reports that are made from records."""
