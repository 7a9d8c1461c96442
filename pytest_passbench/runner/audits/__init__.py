"""What a runner notes about the candidate's code in its own process: evidence, since that code could undo it."""
