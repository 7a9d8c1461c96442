"""A candidate's files: their layout, and checks of their text. Nothing of a candidate is executed here."""
