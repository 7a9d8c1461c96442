"""How a configuration of transformers is narrowed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import pytest

from pytest_passbench.dataset.sources.transformers import MAX_WIDTH, is_recurrent, modality_of, narrow, setting


class Aliased(SimpleNamespace):
    """A configuration whose width has two names, as transformers' ``attribute_map`` gives them."""

    attribute_map: ClassVar = {"hidden_size": "n_embd"}

    @property
    def hidden_size(self):
        return self.n_embd

    @hidden_size.setter
    def hidden_size(self, value):
        self.n_embd = value


class PerLayer(SimpleNamespace):
    """A configuration in which each layer has its own head size."""

    @property
    def head_dim(self):
        raise RuntimeError("'head_dim' is a per-layer attribute")


def test_a_setting_with_two_names_is_narrowed_once():
    config = Aliased(n_embd=4 * MAX_WIDTH, n_head=16)
    narrow(config)
    assert (config.n_embd, config.n_head) == (MAX_WIDTH, 4)


def test_a_setting_of_single_layers_is_left_alone():
    config = PerLayer(hidden_size=4 * MAX_WIDTH, num_attention_heads=16)
    narrow(config)
    assert (config.hidden_size, config.num_attention_heads) == (MAX_WIDTH, 4)
    assert setting(config, "head_dim") is None


@pytest.mark.parametrize(("name", "modality"), [
    ("bert-BertModel", "text"), ("hubert-HubertModel", "audio"), ("whisper-WhisperForConditionalGeneration", "audio"),
    ("whisper-WhisperForCausalLM", "text"), ("mobilevit-MobileViTModel", "vision"),
    ("dinov3_convnext-DINOv3ConvNextBackbone", "vision"), ("perceiver-PerceiverForSequenceClassification", "text"),
])  # fmt: skip
def test_the_kind_of_data_follows_from_the_class_or_the_heads_of_its_type(name, modality):
    pytest.importorskip("transformers")
    assert modality_of(*name.split("-")) == modality


def test_a_recurrent_configuration_is_told_by_its_settings():
    assert is_recurrent(SimpleNamespace(mamba_d_state=16))
    assert not is_recurrent(SimpleNamespace(hidden_size=16))
