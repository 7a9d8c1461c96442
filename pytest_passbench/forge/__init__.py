"""The making of tasks from models."""
