"""Judge compiler passes: correctness at tolerance t, honest speed-ups, ES(t)."""
