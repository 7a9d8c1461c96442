"""The subcommands of ``passbench``, one module each: ``add(subparsers)`` and ``run(args) -> int``."""
