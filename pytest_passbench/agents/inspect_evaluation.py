"""An evaluation of a model by Inspect AI, which can be interrupted and gone on with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from inspect_ai import Task, eval_set
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.log import EvalLog, read_eval_log
from inspect_ai.model import Model, get_model

from pytest_passbench.agents import shared_judge
from pytest_passbench.core.errors import UserError

ATTEMPT_SECONDS = 600
"""After these seconds an answer is no longer awaited. Without bounds Inspect would await it, and retry, for good."""


@dataclass(frozen=True)
class Evaluation:
    """A model by its name in Inspect, the folder of its logs, and how often an endpoint that fails is asked again."""

    model: str
    folder: Path
    retries: int

    def run(self, task: Task) -> EvalLog:
        """Evaluate the model on the samples that the folder's logs do not have yet; return the log with all of them.

        Raises UserError for a model that cannot be asked, and for a folder that Inspect refuses.
        """
        model = self._model()
        try:
            _, (log,) = eval_set(
                [task],
                log_dir=str(self.folder),
                log_dir_allow_dirty=True,  # other models' logs lie there too
                model=model,
                display="plain",
                log_buffer=1,  # each sample is in the log as soon as it ends
                retry_on_error=1,  # a sample, before it is given up
                retry_attempts=0,
                retry_immediate=False,
                max_retries=self.retries,
                attempt_timeout=ATTEMPT_SECONDS,
            )
        except PrerequisiteError as error:
            raise UserError(_message(error), where=self.folder) from error
        finally:
            shared_judge.process_judge().close()
        return read_eval_log(log.location, resolve_attachments=True)

    def _model(self) -> Model:
        try:
            return get_model(self.model, memoize=False)  # a kept one may have another address or key
        except Exception as error:  # each provider has its own for what it lacks: a package, a key, an address
            raise UserError(_message(error), where=f"--model={self.model}") from error


def _message(error: Exception) -> str:
    """Return an error of Inspect's in plain words: its messages may have markup for a terminal."""
    return " ".join(re.sub(r"\[/?[a-z ]*\]", "", str(getattr(error, "message", error))).split())
