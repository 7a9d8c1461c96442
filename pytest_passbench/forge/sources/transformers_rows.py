"""Configurations as data: the widths of well-known checkpoints, if they are not the library's defaults."""

from __future__ import annotations

from pytest_passbench.forge.sources.rows import Table, plain

BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
SMALL = {"hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4}
MOE = {**SMALL, "moe_intermediate_size": 512, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
       "num_experts_per_tok": 2}  # fmt: skip


TEXT: Table = {
    "bert": {},
    "distilbert": {},
    "roberta": {"max_position_embeddings": 1026},
    "electra": {**BASE, "embedding_size": 768},
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "deberta-v2": {**BASE, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "gpt2": {},
    "gpt_neox": {"hidden_size": 2048, "num_attention_heads": 16, "intermediate_size": 8192},
    "opt": {"hidden_size": 768, "num_attention_heads": 12, "ffn_dim": 3072,
            "variants": [(1, 128), (4, 128), (1, 512), (256, 128)]},
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
    "albert": dict(BASE),
    "fnet": {},
}  # fmt: skip

ENCODERS: Table = {
    **plain("xlm-roberta camembert data2vec-text ernie esm ibert lilt luke markuplm mpnet rembert xmod"
            " roberta-prelayernorm roc_bert roformer splinter squeezebert convbert canine bros tapas nomic_bert"
            " modernbert layoutlm funnel xlnet mobilebert nystromformer yoso mra big_bird longformer reformer"
            " eurobert gte jina_embeddings_v3 perceiver"),
    **plain("megatron-bert xlm-roberta-xl", hidden_size=1024, num_attention_heads=16, intermediate_size=4096),
    **plain("xlm flaubert", emb_dim=1024, n_heads=8),
}  # fmt: skip

DECODERS: Table = {
    **plain("openai-gpt biogpt xglm codegen gptj gpt_bigcode", n_embd=1024, n_head=16, hidden_size=1024,
            num_attention_heads=16, d_model=1024),
    "codegen": {"n_embd": 1024, "n_head": 16, "rotary_dim": 32, "n_ctx": 2048},
    "gptj": {"n_embd": 1024, "n_head": 16, "rotary_dim": 64},
    "gpt_bigcode": {},
    "openai-gpt": {},
    "biogpt": {},
    "xglm": {"d_model": 1024, "ffn_dim": 4096, "attention_heads": 16},
    "ctrl": {"n_embd": 1280, "dff": 8192, "n_head": 16},
    "gpt_neo": {"hidden_size": 768, "num_heads": 12, "attention_types": [[["global", "local"], 1]]},
    "imagegpt": {},
    "mpt": {"d_model": 1024, "n_heads": 16},
    "cpmant": {"hidden_size": 1024, "num_attention_heads": 16, "dim_head": 64, "dim_ff": 2560},
    "gpt_neox_japanese": {"hidden_size": 1024, "num_attention_heads": 16},
    **plain("phi3 persimmon starcoder2 stablelm cohere cohere2 olmo olmo2 olmo3 glm glm4 granite nemotron helium"
            " smollm3 exaone4 ernie4_5 hunyuan_v1_dense apertus arcee diffllama seed_oss ministral recurrent_gemma"
            " vaultgemma gemma3_text doge", **SMALL),
    **plain("qwen2_moe qwen3_moe mixtral granitemoe olmoe phimoe gpt_oss jetmoe minimax dots1 ernie4_5_moe", **MOE),
    "deepseek_v2": {**MOE, "kv_lora_rank": 128, "q_lora_rank": 256, "first_k_dense_replace": 1},
    "deepseek_v3": {**MOE, "kv_lora_rank": 128, "q_lora_rank": 256, "first_k_dense_replace": 1, "n_group": 2,
                    "topk_group": 1},
    "gemma3n_text": {},
    "lfm2": {**SMALL, "layer_types": ["conv", "full_attention"]},
    "moshi": {**SMALL},
}  # fmt: skip

TEXT2TEXT: Table = {
    "t5": {"variants": [(1, 128), (4, 128), (1, 512), (1, 96), (1, 48)]},
    "bart": {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072},
}

SEQ2SEQ: Table = {
    **plain("mt5 umt5 longt5 switch_transformers plbart blenderbot-small m2m_100 prophetnet fsmt led"),
    **plain("mbart marian pegasus pegasus_x blenderbot bigbird_pegasus nllb-moe", d_model=768, encoder_ffn_dim=3072,
            decoder_ffn_dim=3072, encoder_attention_heads=12, decoder_attention_heads=12, num_experts=4),
}  # fmt: skip

HYBRID = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}

STATE_SPACE: Table = {
    "mamba": {},
    "mamba2": {"hidden_size": 768, "num_heads": 24, "state_size": 128},
    "rwkv": {"hidden_size": 768, "variants": [(1, 16), (2, 16)]},
    "falcon_mamba": {"hidden_size": 1024, "variants": [(1, 32), (2, 32)]},
    "xlstm": {"hidden_size": 1024, "num_heads": 4, "variants": [(1, 64), (2, 64)]},
    "zamba2": {**SMALL},
    "bamba": {**SMALL, "mamba_n_heads": 32, "mamba_d_head": 64},
    "nemotron_h": {**SMALL, "mamba_num_heads": 32, "variants": [(1, 64), (2, 64), (1, 128), (512, 64)]},
    "falcon_h1": {**SMALL, "mamba_d_ssm": 1024, "mamba_n_heads": 16},
    "granitemoehybrid": {**MOE, "mamba_n_heads": 32},
    "qwen3_next": {**MOE, **HYBRID},
    "qwen3_5_text": {**SMALL, **HYBRID},
    "olmo_hybrid": {**SMALL, **HYBRID},
    "kimi_linear": {**MOE},
    "jamba": {**MOE, "num_experts": 2},
}

VISION: Table = {
    "vit": {},
    "swin": {"depths": [2, 2, 2, 2]},
    "swinv2": {"depths": [2, 2, 2, 2]},
    "convnext": {"depths": [2, 2, 2, 2]},
    "convnextv2": {"depths": [2, 2, 2, 2], "variants": [(1, 224), (4, 224), (64, 224)]},
    "beit": {"use_relative_position_bias": True},
    "dinov2": {},
    "resnet": {"depths": [2, 2, 2, 2]},
    "mobilevit": {},
    "segformer": {},
    "poolformer": {"depths": [2, 2, 2, 2]},
    "regnet": {"depths": [1, 1, 2, 1]},
    "mobilenet_v2": {},
}

IMAGES: Table = {
    **plain("deit data2vec-vision dinov2_with_registers dinov3_vit dinov3_convnext swin2sr cvt pvt pvt_v2"
            " mobilenet_v1 mobilevitv2 levit efficientnet focalnet ijepa vit_mae vit_msn bit swiftformer textnet"
            " siglip_vision_model clip_vision_model aimv2_vision_model dpt glpn depth_anything superpoint"
            " chinese_clip_vision_model blip_vision_model git_vision_model owlvit_vision_model mlcd_vision_model"
            " maskformer-swin hgnet_v2 pixio"),
    "yolos": {"image_size": [512, 864], "variants": [(1, 224)]},
    "hiera": {},
    "vitdet": {"image_size": 224},
    "sam_vision_model": {"image_size": 512, "global_attn_indexes": [1], "variants": [(1, 512)]},
    "sam2_hiera_det_model": {"variants": [(1, 256)]},
    "timesformer": {"variants": [(1, 224)]},
    "videomae": {"variants": [(1, 224)]},
    "vivit": {"variants": [(1, 224)]},
    "vjepa2": {"variants": [(1, 256)]},
    "detr": {"variants": [(1, 224)], "use_timm_backbone": False, "use_pretrained_backbone": False,
             "backbone_config": {"model_type": "resnet"}, "backbone": None},
    "deformable_detr": {"variants": [(1, 224)], "use_timm_backbone": False, "use_pretrained_backbone": False,
                        "backbone_config": {"model_type": "resnet", "out_features": ["stage2", "stage3", "stage4"]},
                        "backbone": None},
    "rt_detr": {"variants": [(1, 320), (1, 256), (1, 224)]},
    "mask2former": {"variants": [(1, 224)]},
    "upernet": {},
}  # fmt: skip

AUDIO: Table = {
    "whisper": {"d_model": 384, "encoder_attention_heads": 6, "decoder_attention_heads": 6,
                "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536, "variants": [(1, 16000)]},
    "wav2vec2": {},
    "hubert": {},
    **plain("wav2vec2-conformer wav2vec2-bert sew sew-d unispeech unispeech-sat wavlm data2vec-audio"
            " audio-spectrogram-transformer encodec dac mimi vits univnet clap_audio_model moonshine"
            " parakeet_encoder speech_to_text granite_speech_encoder qwen2_audio_encoder lasr_encoder"
            " speecht5_hifigan seamless_m4t fastspeech2_conformer voxtral_encoder xcodec musicgen_decoder"),
    **plain("wavlm audio-spectrogram-transformer", variants=[(1, 16000), (4, 16000), (32, 16000)]),
}  # fmt: skip

VISION_TEXT: Table = {
    "clip": {},
    **plain("siglip align altclip blip chinese_clip clipseg flava groupvit owlvit vilt bridgetower xclip owlv2"
            " layoutlmv3 visual_bert siglip2 metaclip_2"),
    "owlv2": {"variants": [(1, 224), (4, 224), (64, 224)]},
}  # fmt: skip

MINI = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
SMOL = {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}
LONG = {"max_position_embeddings": 4096}
WAYS = {
    "": "",
    "sdpa": "scaled_dot_product_attention",
    "decode": "scaled_dot_product_attention, one token with a cache of `size` tokens",
}
"""The endings of rows' names after ``+``, and their wording in a subgraph's provenance."""

SDPA_TEXT: Table = {
    "bert+sdpa": dict(LONG),
    "roberta+sdpa": {"max_position_embeddings": 4098},
    "electra+sdpa": {**MINI, **LONG, "embedding_size": 128},
    "xlm-roberta+sdpa": {**MINI, "max_position_embeddings": 4098},
    "albert+sdpa": {**BASE, **LONG},
    "distilbert+sdpa": dict(LONG),
    "modernbert+sdpa": {},
    "camembert+sdpa": {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536,
                       "max_position_embeddings": 4098},
    "gpt2+sdpa": {"n_positions": 4096},
    "opt+sdpa": {"hidden_size": 768, "num_attention_heads": 12, "ffn_dim": 3072, **LONG},
    "gpt_neox+sdpa": {"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048, **LONG},
    "llama+sdpa": dict(SMOL),
    "mistral+sdpa": dict(SMALL),
    "qwen2+sdpa": {"hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
                   "num_key_value_heads": 2},
    "qwen3+sdpa": {"hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16,
                   "num_key_value_heads": 8, "head_dim": 128},
    "gemma3_text+sdpa": {"hidden_size": 640, "intermediate_size": 2048, "num_attention_heads": 4,
                         "num_key_value_heads": 1},
    "phi+sdpa": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, **LONG},
    "bart+sdpa": {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, **LONG},
    "olmo2+sdpa": dict(SMALL),
    "stablelm+sdpa": dict(SMALL),
}  # fmt: skip

SDPA_IMAGES: Table = plain("vit+sdpa deit+sdpa dinov2+sdpa clip_vision_model+sdpa siglip_vision_model+sdpa beit+sdpa")

SDPA_AUDIO: Table = plain("wav2vec2+sdpa hubert+sdpa")

DECODE: Table = {
    "llama+decode": {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
                     "num_key_value_heads": 8},
    "smollm3+decode": dict(SMALL),
    "mistral+decode": dict(SMALL),
    "qwen2+decode": {"hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14,
                     "num_key_value_heads": 2},
    "qwen3+decode": {"hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16,
                     "num_key_value_heads": 8, "head_dim": 128},
    "gpt2+decode": {"n_positions": 4096},
    "opt+decode": {"hidden_size": 768, "num_attention_heads": 12, "ffn_dim": 3072, **LONG},
    "gpt_neox+decode": {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096, **LONG},
    "phi+decode": {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, **LONG},
    "gemma3_text+decode": {"hidden_size": 640, "intermediate_size": 2048, "num_attention_heads": 4,
                           "num_key_value_heads": 1},
    "olmo2+decode": dict(SMALL),
    "stablelm+decode": dict(SMALL),
    "falcon+decode": {"hidden_size": 1024, "num_attention_heads": 16},
    "granite+decode": dict(SMALL),
    "qwen3_moe+decode": dict(MOE),
}  # fmt: skip

SERIES: Table = {
    "patchtst": {"num_input_channels": 7, "context_length": 512, "patch_length": 16, "patch_stride": 16,
                 "d_model": 128, "num_attention_heads": 8, "ffn_dim": 512},
    "patchtsmixer": {"num_input_channels": 7, "context_length": 512, "patch_length": 16, "patch_stride": 16,
                     "d_model": 128},
}  # fmt: skip
