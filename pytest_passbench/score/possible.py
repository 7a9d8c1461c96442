"""The share of the possible: how much of what a subgraph could gain over eager was gained (docs/scores.md).

It is shown for each class of subgraphs: the kind of operator that decides how fast one can be. A class follows from
the names in a task's ``ops`` alone, since a results file has no graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from statistics import median

from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.ladder import T_STRICT
from pytest_passbench.score.es import speed_at
from pytest_passbench.score.subgraph import Judged

CLASSES = ("convolution", "product", "scan", "pool", "index", "reduction", "elementwise", "layout")
"""The classes. A subgraph has the first class in this order that any of its operators has."""
_NAMES = {
    "product": """
        addbmm addmm addmv baddbmm bilinear bmm cdist chain_matmul dot einsum gru inner linalg_multi_dot linear lstm
        matmul mm multi_head_attention_forward mv rnn_relu rnn_tanh scaled_dot_product_attention tensordot vdot
    """,
    "scan": """
        argsort cummax cummin cumprod cumsum kthvalue logcumsumexp median mode msort nanmedian quantile sort topk
        unique unique_consecutive
    """,
    "pool": "grid_sample interpolate upsample upsample_bilinear upsample_nearest",
    "index": """
        bincount bucketize embedding embedding_bag gather histc index_add index_copy index_fill index_put index_select
        masked_scatter masked_select nonzero one_hot put scatter scatter_add scatter_reduce searchsorted take
        take_along_dim
    """,
    "reduction": """
        all amax amin aminmax any argmax argmin cosine_similarity count_nonzero cross_entropy group_norm
        instance_norm kl_div l1_loss layer_norm linalg_norm linalg_vector_norm log_softmax logsumexp max mean min
        mse_loss nanmean nansum native_group_norm native_layer_norm nll_loss norm normalize prod rms_norm
        smooth_l1_loss softmax softmin std std_mean sum var var_mean weight_norm
    """,
    "layout": """
        arange as_strided block_diag broadcast_tensors broadcast_to cat channel_shuffle chunk clone contiguous detach
        diag_embed diagonal dropout dsplit dstack dropout1d dropout2d dropout3d empty empty_like expand eye flatten
        flip fold full full_like getitem hsplit hstack imag linspace meshgrid movedim narrow new_full new_ones
        new_zeros ones ones_like pad permute pixel_shuffle pixel_unshuffle real repeat repeat_interleave reshape roll
        rot90 select split split_with_sizes squeeze stack t tensor tensor_split tile to transpose tril triu unbind
        unflatten unfold unsqueeze view view_as_complex view_as_real vsplit vstack zeros zeros_like
    """,
}
_CLASS_OF = {name: kind for kind, names in _NAMES.items() for name in names.split()}
LEAST_HEADROOM = 1.5
"""Smaller head-rooms are left out: an error of 10 % in a head-room of 1.5 changes the share by a fourth of itself."""
ALL = "all"
"""The name of all classes together."""


def class_of(operators: Iterable[str]) -> str:
    """Return the class of a subgraph with these operators. An operator that the table lacks is elementwise."""
    return min(map(_class, operators), key=CLASSES.index, default="layout")


def _class(operator: str) -> str:
    if operator.startswith("conv"):
        return "convolution"
    if operator.startswith("fft_"):
        return "product"
    return "pool" if "_pool" in operator else _CLASS_OF.get(operator, "elementwise")


@dataclass(frozen=True)
class Possible:
    """The share of the possible of some subgraphs: the median (None without any), and their number."""

    share: float | None
    subgraphs: int


def share(item: Judged, t: int = T_STRICT) -> float | None:
    """Return the log of a subgraph's speed-up at ``t`` over the log of its task's head-room.

    It is 0 at eager's speed and for a failure, 1 at the head-room, and below 0 for what is slower than eager. The
    null guard holds. It is None if the head-room is unknown or below :data:`LEAST_HEADROOM`, or if the subgraph is
    correct without a measured speed.
    """
    if item.headroom < LEAST_HEADROOM or item.unmeasured_at(t):
        return None
    return log(speed_at(item, t, guard=True)) / log(item.headroom) if item.correct_at(t) else 0.0


def possible(subgraphs: Iterable[Judged], t: int = T_STRICT) -> Possible:
    """Return the median of the shares at ``t`` of those subgraphs that have one."""
    shares = [value for item in subgraphs if (value := share(item, t)) is not None]
    return Possible(median(shares) if shares else None, len(shares))


def with_total(subgraphs: Sequence[Judged], t: int = T_STRICT) -> dict[str, Possible]:
    """Return the share of the possible of each class that has subgraphs with a share, in order, and of all."""
    groups = grouped(subgraphs, lambda item: class_of(item.operators))
    shares = {kind: possible(groups[kind], t) for kind in CLASSES if kind in groups}
    return {kind: value for kind, value in shares.items() if value.subgraphs} | {ALL: possible(subgraphs, t)}
