"""The scores S(t), ES(t) and AS of judged subgraphs. The package imports neither torch nor numpy nor pytest."""
