"""The judge's handles for the processes of a run: sandboxes, templates, runners, and their messages."""
