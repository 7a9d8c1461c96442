"""The trusted side: inputs, clock, verification, verdict."""
