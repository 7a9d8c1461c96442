"""Architectures of a model hub, by their configuration."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.forge.models import ModelCase


def case_of_hub(name: str) -> ModelCase:
    """Return the case of a ``transformers`` configuration: a folder with ``config.json``, or an id of a model hub.

    Raises UserError if transformers is not installed, or if there is no such configuration.
    """
    if importlib.util.find_spec("transformers") is None:
        raise UserError("transformers is not installed", remedy="pip install 'pytest-passbench[forge]'")
    from transformers import AutoConfig

    from pytest_passbench.forge.sources.transformers import case_of_config

    try:
        config = AutoConfig.from_pretrained(name)
    except Exception as error:  # offline, unknown id, broken file: the library's own message names the reason
        first = line(str(error).strip().partition("\n")[0] or type(error).__name__, 500)
        raise UserError(f"no configuration: {first}", where=name,
                        remedy="name a folder with config.json, or check the network") from error  # fmt: skip
    return case_of_config(config, Path(name).name)
