"""The process that imports a candidate. It is never timed. Its answers are data, and the judge checks them."""
