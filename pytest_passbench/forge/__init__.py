"""How tasks are made from models."""
