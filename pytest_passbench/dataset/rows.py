"""Rows of the data set: a row is one graph's text, with the inputs, dtypes and shapes that it was seen with.

Two hashes identify graphs. ``id`` is that of the canonical text, in which sizes are literals. ``form`` is the
strict hash, that of the normal form without dtypes and shapes (:mod:`pytest_passbench.forge.normal_form`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from pytest_passbench.core.task import TensorSpec
from pytest_passbench.forge.instances import Instance
from pytest_passbench.forge.normal_form import digest


@dataclass
class GraphRow:
    """A graph of the data set.

    ``inputs`` have name, dtype, shape and statistics. ``instances`` are the other dtypes and sizes of the same text:
    (dtype, variant, shapes of the inputs). ``marks`` are the curation rules that the graph breaks as it is recorded.
    ``families`` are those of all architectures that have the graph. ``headroom`` is a ratio of memory traffic
    (:func:`pytest_passbench.dataset.extract.headroom`).
    """

    id: str
    form: str
    kind: str
    source: str
    operators: list[str]
    dtype: str
    variant: str
    inputs: list[dict[str, Any]]
    instances: list[dict[str, Any]]
    marks: list[str]
    architecture: str
    library: str
    version: str
    license: str
    family: str
    families: list[str]
    modality: str
    configuration: str
    headroom: float
    split: str = ""


@dataclass
class CaseRows:
    """The rows of one architecture: the contents of its file. ``position`` is its place in the library's list.

    ``rows`` are its new graphs, ``ids`` the hashes of all, those that earlier architectures gave included. ``ranges``
    are the fusible ranges of the runs that were searched. ``refused`` counts the graphs that were left out, by rule.
    """

    architecture: str
    library: str
    family: str
    position: int
    seconds: float = 0.0
    rows: list[GraphRow] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    ranges: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)

    @property
    def rank(self) -> tuple[int, str]:
        """The rank of its :class:`~pytest_passbench.dataset.architectures.Architecture`."""
        return self.position, self.architecture


def text_hash(source: str) -> str:
    """Return the hash of a graph's canonical text."""
    return digest([source])


def input_data(spec: TensorSpec) -> dict[str, Any]:
    """Return an input's name, dtype, shape and statistics."""
    return {name: value for name, value in {**asdict(spec), "shape": list(spec.shape)}.items() if name != "data"}


def input_spec(data: dict[str, Any]) -> TensorSpec:
    """Return the input that :func:`input_data` described."""
    return TensorSpec(**{**data, "shape": tuple(data["shape"])})


def instance_data(instance: Instance) -> dict[str, Any]:
    """Return an instance's dtype, variant and the inputs' shapes and dtypes."""
    return {
        "dtype": instance.dtype,
        "variant": instance.variant,
        "inputs": [f"{spec.dtype}{list(spec.shape)}" for spec in instance.inputs],
    }
