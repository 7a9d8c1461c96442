"""The making of task files from one model: a user's own module, or an architecture from a model hub."""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import kind_of
from pytest_passbench.core.task import Task
from pytest_passbench.forge.choose import candidates, select
from pytest_passbench.forge.corpus import capture_case
from pytest_passbench.forge.curate import choose, draw
from pytest_passbench.forge.group import make_task
from pytest_passbench.forge.models import Case, Variant
from pytest_passbench.forge.sources.rows import draw as draw_input
from pytest_passbench.forge.windows import fusible, matching, typical_windows

EXAMPLE = "example_inputs"
"""The function of this name in the user's file returns the inputs: a tuple or dict of tensors."""


def tasks_of(case: Case, count: int, quota: int = 6) -> list[Task]:
    """Return up to ``count`` tasks from one case's fusible runs and repeated n-grams, the most valuable first.

    Raises UserError if no run of operators passes the curation rules.
    """
    graphs = capture_case(case)
    found = [*fusible(graphs), *typical_windows({case.name: graphs}, 200)]
    chosen = select(candidates(found, {case.name: case.modality}), 3 * count)
    tasks = []
    for one in chosen:
        windows = list(matching(graphs, {one.ops}))
        if subgraphs := choose(draw(windows, {case.name: graphs}), quota):
            tasks.append(make_task(subgraphs))
        if len(tasks) == count:
            break
    if not tasks:
        raise UserError("no run of operators in this model passes the curation rules", where=case.name,
                        remedy="give it larger inputs, or look at its graphs with torch.compile")  # fmt: skip
    return tasks


def case_of_file(spec: str, inputs: Sequence[str], sizes: Sequence[Variant]) -> Case:
    """Return the case of ``FILE.py:Name``: a module class without arguments, a function that makes a module, or a
    module.

    Inputs come from the file's ``example_inputs()``, or from ``inputs`` in the notation of ``sources.rows``
    ("float b 3 n n") at each of ``sizes``. Raises UserError if the file, the name or the inputs are missing, or
    if the file cannot be imported.
    """
    path, _, name = spec.rpartition(":")
    if not path or kind_of(Path(path)) != "file":
        raise UserError("no such file", where=path or spec, remedy="write --model=FILE.py:ClassName")
    module = _load(Path(path))
    if not hasattr(module, name):
        raise UserError(f"has no {name!r}", where=path, remedy="name a class, a function or a module of that file")
    if not inputs and not hasattr(module, EXAMPLE):
        raise UserError("does not define the model's inputs", where=path,
                        remedy=f'define {EXAMPLE}(), or give --input="float b 3 n n"')  # fmt: skip
    make = functools.partial(_notation, tuple(inputs)) if inputs else functools.partial(_examples, module)
    return Case(
        name=f"{Path(path).stem}/{name}",
        modality="own",
        build=functools.partial(_build, getattr(module, name), path),
        inputs=make,
        variants=tuple(sizes) if inputs and sizes else (Variant(1, 224),) if inputs else (Variant(1, 0),),
        note=f"{Path(path).name}:{name}",
    )


def _load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's own code
        raise UserError(f"cannot be imported: {type(error).__name__}: {error}", where=path) from error
    return module


def _build(made: Any, where: str) -> torch.nn.Module:
    torch.manual_seed(0)
    try:
        model = made() if inspect.isclass(made) or inspect.isfunction(made) else made
    except TypeError as error:
        raise UserError(f"cannot be made without arguments: {error}", where=where,
                        remedy="name a function without arguments that makes the model") from error  # fmt: skip
    if not isinstance(model, torch.nn.Module):
        raise UserError(f"gives a {type(model).__name__}, not a torch.nn.Module", where=where)
    return model.eval()


def _notation(texts: Sequence[str], _model: torch.nn.Module, variant: Variant) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(variant.batch * 100003 + variant.size)
    return tuple(draw_input(text, variant, generator) for text in texts)


def _examples(module: Any, _model: torch.nn.Module, _variant: Variant) -> Any:
    torch.manual_seed(1)
    make: Callable[[], Any] = getattr(module, EXAMPLE)
    made = make()
    return (made,) if isinstance(made, torch.Tensor) else made


def case_of_hub(name: str) -> Case:
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
        first = str(error).strip().splitlines()[0]
        raise UserError(f"no configuration: {first}", where=name,
                        remedy="name a folder with config.json, or check the network") from error  # fmt: skip
    return case_of_config(config, Path(name).name)
