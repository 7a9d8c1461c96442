"""A module that no pass imports."""

if False:
    import triton
