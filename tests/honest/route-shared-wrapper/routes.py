"""One wrapper for two passes, told apart by a route."""

from .helper import compute, plain

ROUTES = {"norm": compute, "add": plain}


def dispatch(*args):
    return ROUTES[args[-1]](*args[:-1])
