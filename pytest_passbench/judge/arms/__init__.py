"""The processes of a run, from outside: sandboxes, templates, runners, and what they say."""
