"""Tasks as data: the task file, the published layout, the graph builder."""
