"""The verification of outputs: they are read from stopped runners and compared with eager's."""
