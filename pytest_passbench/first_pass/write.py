"""A pass for a task as files. They are all made before one is written, so a pass that fails leaves no files."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_passbench.candidate.layout import MANIFEST, read_manifest
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import writing
from pytest_passbench.core.task import Task
from pytest_passbench.first_pass.choose import Choice, RequestedRun, choices, operators
from pytest_passbench.first_pass.columns import columns
from pytest_passbench.first_pass.parts import Part
from pytest_passbench.first_pass.passes import cpp_pass, triton_pass
from pytest_passbench.fusion import Unsupported
from pytest_passbench.suite.opnames import operator_sequence

NOTE = "Kernels of the generator, with each value rounded where eager stores it. They are where you begin."


@dataclass
class Draft:
    """The files of a pass by name, the operators that it matches, and those that it leaves to eager with reasons."""

    files: dict[str, str] = field(default_factory=dict)
    matched: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """Return what the passes match, a line for each, and what they leave to eager."""
        lines = [f"{stem} matches {names}" for stem, names in self.matched.items()]
        lines += [f"left to eager: {place}: {reason}" for place, reason in self.left.items()]
        return "\n".join(lines)


def draft(task: Task, triton: bool = False, requested: RequestedRun | None = None) -> Draft:
    """Return the files of a pass for a task. Raises UserError if there is no kernel for a part of it."""
    selected, print_pass = choices(task, requested, triton), triton_pass if triton else cpp_pass
    while True:
        stems = _stems([choice.part for choice in selected])
        calls = columns(task, {stem: choice.part for stem, choice in zip(stems, selected, strict=True)})
        if not calls:
            for choice in selected:
                choice.next(f"{operators(choice.part.nodes)}, which the matcher finds in no graph")
            continue
        if len(calls) < len(stems):  # other passes match the same graphs, or the matcher refuses this place
            selected = [choice for stem, choice in zip(stems, selected, strict=True) if stem in calls]
            continue
        result = Draft()
        for stem, choice in zip(stems, selected, strict=True):
            try:
                text = print_pass(choice.part, calls[stem], stem, document(task, choice))
            except Unsupported as cause:
                choice.next(str(cause))
                break
            result.files[f"{stem}.py"], result.matched[stem] = text, operators(choice.part.nodes)
            for place, reason in choice.left().items():
                result.left.setdefault(place, reason)
        else:
            return result


def _stems(parts: Sequence[Part]) -> list[str]:
    """Return a file name for each pass by its operators."""
    stems: list[str] = []
    for part in parts:
        words = [re.sub(r"\W", "_", name) for name in operator_sequence(part.nodes)]
        wish = "_".join(words[:4]) or "first"
        names = (wish, *(f"{wish}_{number}" for number in range(2, 1000)))
        stems.append(next(name for name in names if name not in stems))
    return stems


def document(task: Task, choice: Choice) -> str:
    """Return the text at the head of a pass: what it matches, and what it leaves to eager."""
    nodes, left = choice.part.nodes, choice.left()
    done = len(operator_sequence(nodes))
    lines = [f"{operators(nodes)}: {done} of the {done + len(left)} operators of {task.id}.", ""]
    if left:
        lines += ["Left to eager:", *(f"- {place}: {reason}" for place, reason in left.items()), ""]
    return "\n".join([*lines, NOTE]).replace("\\", "").replace('"""', "") + "\n"


def write(first_draft: Draft, folder: Path, force: bool) -> list[Path]:
    """Write a draft's files into a folder and add its passes to the folder's list. Return the written files.

    Raises UserError if a file of the draft exists, unless ``force`` is given, or if the list is damaged.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError("is no folder", where=folder, remedy="name a folder for the pass")
    paths = [folder / name for name in first_draft.files]
    for path in paths:
        if path.exists() and not force:
            raise UserError("exists already", where=path, remedy="name another folder, or add --force")
    manifest = folder / MANIFEST
    stems = read_manifest(manifest) if manifest.exists() else []
    listed = json.dumps([*stems, *(stem for stem in first_draft.matched if stem not in stems)]) + "\n"
    with writing(folder, "name another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip([*paths, manifest], [*first_draft.files.values(), listed], strict=True):
            path.write_text(text)
    return [*paths, manifest]
