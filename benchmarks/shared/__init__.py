"""What benchmarks and tests share: workspaces, inputs, candidates and faults made on purpose."""
