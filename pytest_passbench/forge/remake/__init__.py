"""The making of this project's own suite. No user's model needs it."""
