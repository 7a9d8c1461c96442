"""Environments for models that write passes: tools, feedback and a reward, in process or over HTTP."""

from pytest_passbench.agents.environment import JudgedAttempt, PassEnvironment
from pytest_passbench.agents.shared_judge import SharedJudge, process_judge

__all__ = ["JudgedAttempt", "PassEnvironment", "SharedJudge", "process_judge"]
