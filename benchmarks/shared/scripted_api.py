"""Models of Inspect's that answer by a function in the place of a network: ``--model scripted/NAME``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from inspect_ai.model import ChatMessageAssistant, ModelAPI, ModelOutput, ModelUsage, modelapi

Call = tuple[str, dict[str, Any]]
NextCall = Callable[[str, int, Sequence[Any]], Awaitable[Call | None]]
"""Returns a model's next tool call, for the model's name, the number of its answers so far, and the messages."""


def register(next_call: NextCall) -> None:
    """Register the provider ``scripted``. If ``next_call`` returns None, the model answers "I give up"."""

    class Scripted(ModelAPI):
        """A model without a network. Its usage is stated, since Inspect would download a vocabulary to count it."""

        async def generate(self, input: list[Any], *_arguments: Any, **_settings: Any) -> ModelOutput:
            turn = sum(isinstance(message, ChatMessageAssistant) for message in input)
            call = await next_call(self.model_name, turn, input)
            if call is None:
                output = ModelOutput.from_content(self.model_name, "I give up")
            else:
                output = ModelOutput.for_tool_call(self.model_name, *call)
            output.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
            return output

        async def count_text_tokens(self, text: str) -> int:
            return len(text)

    modelapi(name="scripted")(lambda: Scripted)
