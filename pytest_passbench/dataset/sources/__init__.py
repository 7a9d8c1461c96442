"""Libraries as a whole, each with ``LIBRARY``, ``LICENSE`` and ``cases()``: (family, case), nothing if not installed.

Their configurations are the libraries' own defaults, narrowed.
"""
