"""Denoisers and autoencoders of ``diffusers``: widths of known checkpoints, two layers or blocks."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.forge.sources.rows import ModelSpec
from pytest_passbench.forge.sources.rows import cases as make_cases

LIBRARY = "diffusers"
LICENSE = "Apache-2.0"

LATENTS = (Variant(1, 32), Variant(2, 64))
SMALL = (Variant(1, 32), Variant(2, 32))
UNET = {"sample": "float b 4 n n", "timestep": "int1000 b", "encoder_hidden_states": "float b 77 768"}
DIT = {"hidden_states": "float b 4 n n", "timestep": "int1000 b"}


def _row(name: str, inputs: dict[str, str], variants: tuple[Variant, ...] = SMALL, **arguments: object) -> ModelSpec:
    return ModelSpec(name, f"diffusers:{name}", inputs, arguments, variants)


# Some rows have a wide batch besides: the embedding of a timestep has one row for each sample, and in small batches
# eager takes less time for it than a subgraph of the suite may.
ROWS = (
    _row("UNet2DConditionModel", UNET, (*SMALL, Variant(60, 32)), block_out_channels=(320, 640),
         cross_attention_dim=768, layers_per_block=1, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
         up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), attention_head_dim=8),
    _row("UNet2DModel", {"sample": "float b 3 n n", "timestep": "int1000 b"}, LATENTS, sample_size=32,
         block_out_channels=(128, 256), layers_per_block=1, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
         up_block_types=("AttnUpBlock2D", "UpBlock2D")),
    _row("AutoencoderKL", {"sample": "float b 3 n n"}, (Variant(1, 64), Variant(2, 64)), latent_channels=4,
         block_out_channels=(128, 256), down_block_types=("DownEncoderBlock2D",) * 2,
         up_block_types=("UpDecoderBlock2D",) * 2),
    _row("AutoencoderTiny", {"sample": "float b 3 n n"}, (Variant(1, 128), Variant(2, 128))),
    _row("VQModel", {"sample": "float b 3 n n"}, (Variant(1, 64), Variant(2, 64)), block_out_channels=(128,)),
    _row("AutoencoderDC", {"sample": "float b 3 n n"}, (Variant(1, 64), Variant(2, 64)), attention_head_dim=32,
         encoder_block_out_channels=(128, 256), decoder_block_out_channels=(128, 256),
         encoder_layers_per_block=(1, 1), decoder_layers_per_block=(1, 1), latent_channels=8,
         encoder_block_types=("ResBlock", "EfficientViTBlock"), decoder_block_types=("ResBlock", "EfficientViTBlock"),
         encoder_qkv_multiscales=((), (5,)), decoder_qkv_multiscales=((), (5,))),
    _row("DiTTransformer2DModel", {**DIT, "class_labels": "int1000 b"}, (*SMALL, Variant(128, 32)), num_layers=2,
         sample_size=32, num_attention_heads=16, attention_head_dim=72, in_channels=4, out_channels=8),
    _row("PixArtTransformer2DModel", {**DIT, "encoder_hidden_states": "float b 120 1152"}, SMALL, num_layers=2,
         sample_size=32, caption_channels=None, use_additional_conditions=False),
    _row("SD3Transformer2DModel", {"hidden_states": "float b 16 n n", "encoder_hidden_states": "float b 77 1024",
         "pooled_projections": "float b 2048", "timestep": "int1000 b"}, (*SMALL, Variant(256, 32)), num_layers=2,
         sample_size=64, joint_attention_dim=1024, caption_projection_dim=1152, pooled_projection_dim=2048),
    _row("FluxTransformer2DModel", {"hidden_states": "float b n*8 64", "encoder_hidden_states": "float b 64 1024",
         "pooled_projections": "float b 768", "timestep": "int1 b", "img_ids": "int16 n*8 3", "txt_ids": "int1 64 3"},
         SMALL, num_layers=1, num_single_layers=1, attention_head_dim=64, num_attention_heads=12,
         joint_attention_dim=1024, axes_dims_rope=(16, 24, 24)),
    _row("Transformer2DModel", {"hidden_states": "float b 320 n n", "encoder_hidden_states": "float b 77 768"}, SMALL,
         num_attention_heads=8, attention_head_dim=40, in_channels=320, cross_attention_dim=768),
    _row("UNet1DModel", {"sample": "float b 2 n", "timestep": "int1000 b"}, (Variant(1, 4096), Variant(2, 4096))),
    _row("UVit2DModel", {"input_ids": "int8192 b n n", "encoder_hidden_states": "float b 77 768",
         "pooled_text_emb": "float b 768", "micro_conds": "int256 b 5"},
         (Variant(1, 16), Variant(2, 16), Variant(128, 16)), num_hidden_layers=2),
    _row("PriorTransformer", {"hidden_states": "float b 768", "timestep": "int1000 b",
         "proj_embedding": "float b 768", "encoder_hidden_states": "float b 77 768"}, SMALL, num_layers=2,
         num_attention_heads=12),
    _row("SanaTransformer2DModel", {"hidden_states": "float b 32 n n", "encoder_hidden_states": "float b 100 1152",
         "timestep": "int1000 b"}, (Variant(1, 16), Variant(2, 16)), num_layers=2, num_attention_heads=18,
         attention_head_dim=32, num_cross_attention_heads=9, cross_attention_head_dim=64, cross_attention_dim=576,
         caption_channels=1152, sample_size=16),
    _row("AuraFlowTransformer2DModel", {**DIT, "encoder_hidden_states": "float b 64 1024"}, SMALL, sample_size=64,
         num_mmdit_layers=1, num_single_dit_layers=1, attention_head_dim=64, num_attention_heads=12,
         joint_attention_dim=1024, caption_projection_dim=768),
    _row("CogVideoXTransformer3DModel", {"hidden_states": "float b 4 16 n n", "timestep": "int1000 b",
         "encoder_hidden_states": "float b 64 1024"}, (Variant(1, 16), Variant(2, 16), Variant(128, 16)),
         num_layers=1, num_attention_heads=12, text_embed_dim=1024, max_text_seq_length=64,
         sample_width=16, sample_height=16, sample_frames=13),
    _row("AllegroTransformer3DModel", {"hidden_states": "float b 4 4 n n", "timestep": "int1000 b",
         "encoder_hidden_states": "float b 64 1024"}, (Variant(1, 16), Variant(256, 16)), num_layers=1,
         num_attention_heads=12, attention_head_dim=96, cross_attention_dim=1152, caption_channels=1024,
         sample_width=16, sample_height=16),
    _row("StableCascadeUNet", {"sample": "float b 16 n n", "timestep_ratio": "float b",
         "clip_text_pooled": "float b 1 1280"}, (Variant(1, 16), Variant(2, 16), Variant(512, 16)),
         in_channels=16, out_channels=16, block_out_channels=(512, 512), num_attention_heads=(8, 8),
         down_num_layers_per_block=(1, 1), up_num_layers_per_block=(1, 1), conditioning_dim=512,
         down_blocks_repeat_mappers=(1, 1), up_blocks_repeat_mappers=(1, 1),
         block_types_per_layer=(("SDCascadeResBlock", "SDCascadeTimestepBlock", "SDCascadeAttnBlock"),) * 2,
         clip_text_pooled_in_channels=1280),
    _row("LuminaNextDiT2DModel", {"hidden_states": "float b 4 n n", "timestep": "float b",
         "encoder_hidden_states": "float b 64 1024", "encoder_mask": "int2 b 64", "image_rotary_emb": "float 1"},
         SMALL, num_layers=2, hidden_size=768, num_attention_heads=12, cross_attention_dim=1024),
    _row("WanTransformer3DModel", {"hidden_states": "float b 16 3 n n", "timestep": "int1000 b",
         "encoder_hidden_states": "float b 64 1024"}, (Variant(1, 16), Variant(2, 16)), num_layers=1,
         num_attention_heads=12, attention_head_dim=64, text_dim=1024, ffn_dim=3072),
    _row("LTXVideoTransformer3DModel", {"hidden_states": "float b n*8 128", "timestep": "int1000 b",
         "encoder_hidden_states": "float b 64 1024", "encoder_attention_mask": "int2 b 64"}, SMALL, num_layers=1,
         num_attention_heads=16, attention_head_dim=64, cross_attention_dim=1024, caption_channels=1024),
)  # fmt: skip


def cases() -> Iterator[ModelCase]:
    """Return one case per row."""
    return make_cases(LIBRARY, "diffusion", ROWS)
