"""A first pass for a task: its pattern, and a plain C++ or Triton kernel, written as a candidate's files."""
