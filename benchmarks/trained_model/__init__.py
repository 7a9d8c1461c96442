"""A small decoder that is trained from nothing to write passes: a proof of the loop from graphs to judged answers."""
