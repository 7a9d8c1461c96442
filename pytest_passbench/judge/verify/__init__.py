"""Outputs read from a stopped runner and compared with eager's."""
