"""The scores S(t), ES(t) and AS of judged subgraphs, and their share of the possible.

The package imports neither torch nor numpy nor pytest.
"""
