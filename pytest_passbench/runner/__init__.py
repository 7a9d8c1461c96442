"""The untrusted side: code that runs inside a sandbox. It imports nothing of ``judge``."""
