"""The class of a subgraph: the kind of operator that decides how fast it can be.

Names are those of a task's ``ops``. The table is of names alone, since a results file has no graphs.
"""

from __future__ import annotations

from collections.abc import Iterable

CLASSES = ("convolution", "product", "scan", "pool", "index", "reduction", "elementwise", "layout")
"""The classes. A subgraph is of the first one that an operator of it is of: a convolution decides over all else."""

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


def class_of(operators: Iterable[str]) -> str:
    """Return the class of a subgraph with these operators. An operator that the table lacks is elementwise."""
    return min(map(_class, operators), key=CLASSES.index, default="layout")


def _class(operator: str) -> str:
    if operator.startswith("conv"):
        return "convolution"
    if operator.startswith("fft_"):
        return "product"
    return "pool" if "_pool" in operator else _CLASS_OF.get(operator, "elementwise")
