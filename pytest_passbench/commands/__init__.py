"""The subcommands of ``passbench``, one module each: ``HELP``, ``add(parser)`` and ``run(args) -> int``."""
