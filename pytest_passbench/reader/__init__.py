"""The process that imports a candidate: never timed, never believed; it answers with data."""
