"""The untrusted side: what runs inside a sandbox. Imports nothing of judge/."""
