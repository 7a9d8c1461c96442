"""The cores that arms run on: their choice, keeping them awake, and real-time priority on them."""
