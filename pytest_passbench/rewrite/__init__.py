"""Find a pass's pattern in a graph and put its kernel there."""
