"""Configurations as data: the widths of well-known checkpoints where the library's defaults are not those already."""

from __future__ import annotations

from typing import Any

Rows = dict[str, dict[str, Any]]

TEXT: Rows = {
    "bert": {},
    "distilbert": {},
    "roberta": {},
    "electra": {"hidden_size": 768, "embedding_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "deberta-v2": {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072,
                   "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "gpt2": {},
    "gpt_neox": {"hidden_size": 2048, "num_attention_heads": 16, "intermediate_size": 8192},
    "opt": {"hidden_size": 768, "num_attention_heads": 12, "ffn_dim": 3072},
    "bloom": {"hidden_size": 1024, "n_head": 16},
    "llama": {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8},
    "mistral": {"hidden_size": 2048, "intermediate_size": 7168, "num_attention_heads": 32, "num_key_value_heads": 8},
    "qwen2": {"hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14, "num_key_value_heads": 2},
    "qwen3": {"hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8,
              "head_dim": 128},
    "gemma": {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 8, "num_key_value_heads": 1},
    "gemma2": {"hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8, "num_key_value_heads": 4},
    "phi": {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32},
    "falcon": {"hidden_size": 2048, "num_attention_heads": 32},
    "albert": {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "fnet": {},
}  # fmt: skip

TEXT2TEXT: Rows = {
    "t5": {},
    "bart": {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072},
}

STATE_SPACE: Rows = {
    "mamba": {},
    "mamba2": {"hidden_size": 768, "num_heads": 24, "state_size": 128},
    "rwkv": {"hidden_size": 768},
}

VISION: Rows = {
    "vit": {},
    "swin": {"depths": [2, 2, 2, 2]},
    "swinv2": {"depths": [2, 2, 2, 2]},
    "convnext": {"depths": [2, 2, 2, 2]},
    "convnextv2": {"depths": [2, 2, 2, 2]},
    "beit": {"use_relative_position_bias": True},
    "dinov2": {},
    "resnet": {"depths": [2, 2, 2, 2]},
    "mobilevit": {},
    "segformer": {},
    "poolformer": {"depths": [2, 2, 2, 2]},
    "regnet": {"depths": [1, 1, 2, 1]},
    "mobilenet_v2": {},
    "efficientnet": {},
}

AUDIO: Rows = {
    "whisper": {"d_model": 384, "encoder_attention_heads": 6, "decoder_attention_heads": 6,
                "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536, "variants": [(1, 16000)]},
    "wav2vec2": {},
    "hubert": {},
}  # fmt: skip

VISION_TEXT: Rows = {
    "clip": {},
}

OTHER: Rows = {}
