"""The engine without pytest: for training loops, notebooks and scripts."""

from pytest_passbench.api.evaluator import Evaluator, evaluate
from pytest_passbench.api.outcome import Outcome, Reward
from pytest_passbench.api.staged import StagedReward

__all__ = ["Evaluator", "Outcome", "Reward", "StagedReward", "evaluate"]
