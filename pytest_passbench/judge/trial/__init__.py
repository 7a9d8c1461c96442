"""The trial of a subgraph: build, probe, measure, audit, record."""
