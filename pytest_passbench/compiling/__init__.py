"""One run of Triton's compiler, in a sandbox of its own: what runs inside it."""
