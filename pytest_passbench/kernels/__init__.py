"""What a candidate may import to write kernels."""
