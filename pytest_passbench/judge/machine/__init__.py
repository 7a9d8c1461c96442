"""The cores that arms run on: choosing them, keeping them awake, and running first on them."""
