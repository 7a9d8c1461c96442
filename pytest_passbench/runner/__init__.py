"""The untrusted side: code that runs in a sandbox, without anything of ``judge``. ``zygote`` starts readers, too."""
