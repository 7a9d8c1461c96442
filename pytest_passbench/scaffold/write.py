"""A pass for a task as files: made first, then written, so that nothing is written of a pass that cannot be made."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from torch.fx import Node

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import Task
from pytest_passbench.fusion import Unsupported
from pytest_passbench.scaffold.assemble import cpp_pass, stem_of
from pytest_passbench.scaffold.choose import RequestedRun, choose
from pytest_passbench.scaffold.fused import fused_pass
from pytest_passbench.scaffold.lowering.lower import CallLowering
from pytest_passbench.scaffold.parts import Part
from pytest_passbench.scaffold.triton import TritonLowering, triton_pass
from pytest_passbench.suite.opnames import is_metadata, op_name

MANIFEST = "sorted_output_pass_rule_names.json"


@dataclass
class Draft:
    """The files of a pass by name, and what is said about it: the matched operators, and the others with reasons.

    ``plain`` has the passes without a fused kernel, with reasons.
    """

    files: dict[str, str] = field(default_factory=dict)
    stems: list[str] = field(default_factory=list)
    matched: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    plain: dict[str, str] = field(default_factory=dict)


def draft(task: Task, triton: bool = False, requested: RequestedRun | None = None) -> Draft:
    """Return the files of a pass for a task. Raises UserError if no plain kernel can be written for it."""
    result = Draft()
    parts = choose(task, requested, TritonLowering if triton else CallLowering)
    for part in parts:
        names = operators(part.nodes)
        wish = stem_of([op_name(node) for node in part.nodes if not is_metadata(node)])
        stem = wish if wish not in result.stems else next(
            f"{wish}_{i}" for i in range(2, 1000) if f"{wish}_{i}" not in result.stems)  # fmt: skip
        result.files[f"{stem}.py"], reason = _text(task, part, stem, triton, len(parts) == 1)
        if reason:
            result.plain[stem] = reason
        result.stems.append(stem)
        result.matched.append(names)
        for node in part.left:
            if not is_metadata(node):
                reason = part.reasons.get(node, "it stands apart from the matched run")
                result.left.setdefault(f"{node.name} ({op_name(node)})", reason)
    return result


PLAIN = "The kernel is correct, plain and slow: it is where you begin. Each value is rounded where eager stores it."
FUSED = "One kernel does all of it, with each value rounded where eager stores it. It is where you begin."


def _text(task: Task, part: Part, stem: str, triton: bool, alone: bool) -> tuple[str, str]:
    """Return the file of a pass, and why its kernels are plain: nothing if one fused kernel does it all.

    A pass that is not ``alone`` may match the graphs of other passes too, with other ranks and broadcasts.
    """
    if triton:
        return triton_pass(part, stem, document(task, part, PLAIN)), ""
    try:
        if not alone:
            raise Unsupported("the task has several patterns")
        return fused_pass(part, stem, document(task, part, FUSED)), ""
    except Unsupported as reason:
        return cpp_pass(part, stem, document(task, part, PLAIN)), str(reason)


def operators(nodes: tuple[Node, ...]) -> str:
    """Return the operators of a run in words."""
    return ", ".join(op_name(node) for node in nodes if not is_metadata(node))


def document(task: Task, part: Part, note: str) -> str:
    """Return the text at the head of a pass: what it matches, what it leaves to eager, and a note on its kernel."""
    graph = part.form.operators
    counted = [node for node in graph if not is_metadata(node)]
    done = [node for node in part.nodes if not is_metadata(node)]
    lines = [f"{operators(part.nodes)}: {len(done)} of the {len(counted)} operators of {task.id}.", ""]
    if len(done) < len(counted):
        lines += ["Left to eager:", *(
            f"- {node.name} ({op_name(node)}): {part.reasons.get(node, 'it stands apart from the matched run')}"
            for node in part.left if not is_metadata(node)), ""]  # fmt: skip
    return "\n".join([*lines, note]) + "\n"


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
    stems = _listed(manifest)
    listed = json.dumps([*stems, *(stem for stem in first_draft.stems if stem not in stems)]) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip([*paths, manifest], [*first_draft.files.values(), listed], strict=True):
            path.write_text(text)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=folder, remedy="name another folder") from None
    return [*paths, manifest]


def _listed(manifest: Path) -> list[str]:
    """Return the passes that a folder lists already, of which there may be none."""
    if not manifest.exists():
        return []
    try:
        stems = json.loads(manifest.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"is no list of passes: {error}", where=manifest, remedy="repair or delete it") from None
    if not isinstance(stems, list) or not all(isinstance(stem, str) for stem in stems):
        raise UserError("is no list of names", where=manifest, remedy="repair or delete it")
    return stems
