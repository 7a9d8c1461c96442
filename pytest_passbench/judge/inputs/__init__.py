"""The inputs of every call: secret, and fresh in every element of every call of every block.

A key of the run's secret and a counter (block, call, input) decide every value. So the inputs of any call can be made
again when it is verified. Values that a candidate has seen tell nothing about later ones.
"""

from pytest_passbench.judge.inputs.draws import Batch, Inputs
from pytest_passbench.judge.inputs.generator import Generator, default

__all__ = ["Batch", "Generator", "Inputs", "default"]
