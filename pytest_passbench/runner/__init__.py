"""The untrusted side: code that runs in a sandbox and imports nothing of ``judge``. ``zygote`` starts readers too."""
