"""The code inside the sandbox of Triton's compiler. Each run of the compiler has a sandbox of its own."""
