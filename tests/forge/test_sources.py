"""The libraries that architectures come from: what they need to be imported, and the cases that they give."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path

import pytest
import torch

from pytest_passbench.forge.corpus import capture_case
from pytest_passbench.forge.models import Variant
from pytest_passbench.forge.sources import SOURCES
from pytest_passbench.forge.sources import timm as source
from pytest_passbench.forge.sources.timm import stand_in
from pytest_passbench.forge.windows import names

FAKE = """
import torch
import torchvision.transforms as transforms
from torchvision import datasets
from torchvision.ops.misc import FrozenBatchNorm2d
from torchvision.transforms.functional import InterpolationMode

class Own(transforms.ToTensor):
    pass

MODES = {InterpolationMode.NEAREST: "nearest", InterpolationMode.BICUBIC: "bicubic"}
NORMS = {FrozenBatchNorm2d, datasets.ImageFolder}

def create_model(model_name, **arguments):
    assert len(MODES) == len(NORMS) == 2
    model = torch.nn.Linear(4, 4)
    model.asked_for = model_name, arguments
    return model
"""


@pytest.fixture
def without_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide an installed torchvision, since the stand-in is used only if there is none."""
    find, hidden = importlib.util.find_spec, "torchvision"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == hidden else find(name))
    monkeypatch.setitem(sys.modules, "timm", types.ModuleType("timm"))  # so that the end of the test undoes an import
    for name in [one for one in sys.modules if one.partition(".")[0] in ("torchvision", "timm")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.usefixtures("without_torchvision")
def test_the_stand_in_has_the_names_and_leaves_nothing_behind() -> None:
    with stand_in():
        functional = importlib.import_module("torchvision.transforms.functional")
        assert functional.InterpolationMode.BILINEAR != functional.InterpolationMode.BICUBIC
        assert isinstance(importlib.import_module("torchvision.ops.misc").FrozenBatchNorm2d, type)
        with pytest.raises(ImportError):  # timm does without these, if they are missing
            importlib.import_module("torchvision.models.feature_extraction")
    assert not [name for name in sys.modules if name.partition(".")[0] == "torchvision"]


def test_the_stand_in_makes_way_for_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = types.ModuleType("torchvision")
    monkeypatch.setitem(sys.modules, "torchvision", mine)
    with stand_in():
        assert importlib.import_module("torchvision") is mine
    assert sys.modules["torchvision"] is mine


@pytest.mark.usefixtures("without_torchvision")
def test_a_row_of_timm_says_what_was_changed_and_builds_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timm.py").write_text(FAKE)
    monkeypatch.syspath_prepend(tmp_path)
    cases = {case.name: case for case in source.cases()}
    assert set(cases) == {f"timm/{name}" for name in (*source.CONVOLUTIONAL, *source.TRANSFORMERS)}
    resnet, swin = cases["timm/resnet18"], cases["timm/swinv2_tiny_window8_256"]
    assert (resnet.note, cases["timm/vgg11_bn"].note) == ("layers=(2, 2, 2, 2)", "defaults")
    assert swin.variants == (Variant(1, 256), Variant(4, 256))
    assert resnet.build().asked_for == ("resnet18", {"layers": (2, 2, 2, 2)})
    (image,) = resnet.inputs(torch.nn.Identity(), Variant(2, 8))
    assert image.shape == (2, 3, 8, 8)


def test_no_two_architectures_share_a_name() -> None:
    found = [case.name for library in SOURCES for case in library.cases()]
    assert len(set(found)) == len(found)


if importlib.util.find_spec("timm") is not None:  # an optional dependency of the forge alone

    def test_an_architecture_of_timm_is_captured() -> None:
        (case,) = [case for case in source.cases() if case.name == "timm/lcnet_050"]
        (graph,) = [graph for graph in capture_case(case) if graph.variant == case.variants[0]]
        assert {"conv2d", "batch_norm", "hardswish", "hardsigmoid"} <= set(names(graph))


if importlib.util.find_spec("transformers") is not None:
    from pytest_passbench.forge.sources.transformers import case as make_case
    from pytest_passbench.forge.sources.transformers import case_of_config

    TINY = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}

    @pytest.mark.slow
    def test_a_configuration_in_bfloat16_gives_a_model_in_float32() -> None:
        from transformers import LlamaConfig

        model = case_of_config(LlamaConfig(**TINY, dtype="bfloat16"), "small").build()
        assert {value.dtype for value in model.parameters()} == {torch.float32}

    @pytest.mark.slow
    def test_a_decode_step_has_one_token_and_a_cache_in_the_models_dtype() -> None:
        case = make_case("llama+decode", "text", TINY, (Variant(2, 8), Variant(3, 4)))
        assert case.name == "transformers/llama-decode"
        assert "one token with a cache" in case.note
        first, second = capture_case(case)
        assert "scaled_dot_product_attention" in names(first)
        for graph, batch, tokens in ((first, 2, 8), (second, 3, 4)):
            cached = [name for name, value in graph.captured.values.items() if value.shape == (batch, 2, tokens, 8)]
            assert len(cached) == 4  # keys and values of two layers
            assert {graph.low[name] for name in cached} == {"bfloat16"}
            assert all((graph.captured.values[name].std or 0) > 0 for name in cached)

    @pytest.mark.slow
    def test_fused_attention_is_a_row_of_its_own() -> None:
        fused = make_case("llama+sdpa", "text", TINY, (Variant(1, 8),))
        plain = make_case("llama", "text", TINY, (Variant(1, 8),))
        assert (fused.name, plain.name) == ("transformers/llama-sdpa", "transformers/llama")
        assert "scaled_dot_product_attention" in names(capture_case(fused)[0])
        assert "scaled_dot_product_attention" not in names(capture_case(plain)[0])
