"""What a process of the untrusted side gives up by itself, before it runs anything of a candidate."""
