"""Rights that a process of the untrusted side gives up before it runs anything of a candidate."""
