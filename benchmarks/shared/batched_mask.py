"""An attention mask as Dynamo captures it from a transformer: four levels of torch.vmap, written out as calls."""

from __future__ import annotations

PLACES = ("torch._functorch.predispatch", "torch._C._functorch")
"""The modules that graphs take the calls from: that of newer releases of torch, and of older ones."""

_MASK = """
def forward(in_0, in_1, in_2):
    x = torch.nn.functional.relu(in_2);  in_2 = None
    x_1 = x * 2;  x = None
    kv_arange = torch.arange(5, device = device(type='cuda', index=0))
    kv_arange += 0
    kv_arange_1 = kv_arange;  kv_arange = None
    batch_arange = torch.arange(2)
    head_arange = torch.arange(1)
    lazy_load_decompositions = LAZY.lazy_load_decompositions();  lazy_load_decompositions = None
    _vmap_increment_nesting = PLACE._vmap_increment_nesting(2, 'error');  _vmap_increment_nesting = None
    child = PLACE._add_batch_dim(batch_arange, 0, 1);  batch_arange = None
    _vmap_increment_nesting_1 = PLACE._vmap_increment_nesting(1, 'error');  _vmap_increment_nesting_1 = None
    child_1 = PLACE._add_batch_dim(head_arange, 0, 2);  head_arange = child_1 = None
    _vmap_increment_nesting_2 = PLACE._vmap_increment_nesting(5, 'error');  _vmap_increment_nesting_2 = None
    child_2 = PLACE._add_batch_dim(in_1, 0, 3);  in_1 = None
    _vmap_increment_nesting_3 = PLACE._vmap_increment_nesting(5, 'error');  _vmap_increment_nesting_3 = None
    child_3 = PLACE._add_batch_dim(kv_arange_1, 0, 4);  kv_arange_1 = None
    result = child_2.new_ones((), dtype = torch.bool)
    le = child_3 <= child_2;  child_2 = None
    result_1 = result.__and__(le);  result = le = None
    function_ctx = torch.autograd.function.FunctionCtx();  function_ctx = None
    index = torch.ops.aten.index(in_0, [child, child_3]);  in_0 = child = child_3 = None
    batched_outputs = result_1.__and__(index);  result_1 = index = None
    batched_outputs_1 = PLACE._remove_batch_dim(batched_outputs, 4, 5, 0);  batched_outputs = None
    _vmap_decrement_nesting = PLACE._vmap_decrement_nesting();  _vmap_decrement_nesting = None
    batched_outputs_2 = PLACE._remove_batch_dim(batched_outputs_1, 3, 5, 0);  batched_outputs_1 = None
    _vmap_decrement_nesting_1 = PLACE._vmap_decrement_nesting();  _vmap_decrement_nesting_1 = None
    batched_outputs_3 = PLACE._remove_batch_dim(batched_outputs_2, 2, 1, 0);  batched_outputs_2 = None
    _vmap_decrement_nesting_2 = PLACE._vmap_decrement_nesting();  _vmap_decrement_nesting_2 = None
    causal_mask = PLACE._remove_batch_dim(batched_outputs_3, 1, 2, 0);  batched_outputs_3 = None
    _vmap_decrement_nesting_3 = PLACE._vmap_decrement_nesting();  _vmap_decrement_nesting_3 = None
    masked = x_1.masked_fill(causal_mask, -1.0);  x_1 = causal_mask = None
    return (masked,)
"""


def mask_source(place: str = PLACES[0]) -> str:
    """Return the graph's text. It takes a mask of bools [2, 5], positions [5] and scores [2, 1, 5, 5]."""
    lazy = "torch._functorch.vmap" if place == PLACES[1] else place
    return _MASK.replace("LAZY", lazy).replace("PLACE", place)
