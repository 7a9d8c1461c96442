"""Whole libraries, each with ``LIBRARY``, ``LICENSE`` and ``cases()``, which yields pairs of a family and a case.

It yields nothing if the library is not installed.
"""
