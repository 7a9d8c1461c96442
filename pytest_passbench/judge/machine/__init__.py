"""The machine: the cores that arms run on, their locks, real-time priority, the judge's limits, the state of GPUs."""
