"""Architectures of five libraries as rows of data: widths of known checkpoints, two layers or blocks."""

from __future__ import annotations

from typing import Any

from pytest_passbench.forge.models import Variant
from pytest_passbench.forge.sources.rows import Library, ModelSpec, library

# diffusers: denoisers and autoencoders
LATENTS = (Variant(1, 32), Variant(2, 64))
SMALL = (Variant(1, 32), Variant(2, 32))
UNET = {"sample": "float b 4 n n", "timestep": "int1000 b", "encoder_hidden_states": "float b 77 768"}
DIT = {"hidden_states": "float b 4 n n", "timestep": "int1000 b"}


def _row(name: str, inputs: dict[str, str], variants: tuple[Variant, ...] = SMALL, **arguments: object) -> ModelSpec:
    return ModelSpec(name, f"diffusers:{name}", inputs, arguments, variants)


# Some rows have a wide batch besides: the embedding of a timestep has one row for each sample, and in small batches
# eager takes less time for it than a subgraph of the suite may.
DENOISERS = (
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

# vit-pytorch: the arguments of its README at a base model's width
VIT: dict[str, Any] = {"image_size": 224, "patch_size": 16, "num_classes": 1000, "dim": 768, "depth": 2, "heads": 12,
                       "mlp_dim": 3072}  # fmt: skip
VIT_SIZES = ((Variant(1, 224), Variant(4, 224)), (Variant(2, 224), Variant(8, 224)))
VIT_TABLE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("vit", "ViT", VIT),
    ("simple_vit", "SimpleViT", VIT),
    ("deepvit", "DeepViT", VIT),
    ("cait", "CaiT", {**VIT, "cls_depth": 1}),
    ("parallel_vit", "ViT", VIT),
    ("rvt", "RvT", VIT),
    ("vit_with_patch_merger", "ViT", VIT),
    ("vit_for_small_dataset", "ViT", VIT),
    ("simple_vit_with_qk_norm", "SimpleViT", VIT),
    ("simple_vit_with_register_tokens", "SimpleViT", VIT),
    ("simple_vit_with_patch_dropout", "SimpleViT", VIT),
    ("simple_vit_with_value_residual", "SimpleViT", VIT),
    ("simple_vit_with_hyper_connections", "SimpleViT", {**VIT, "num_residual_streams": 4}),
    ("normalized_vit", "nViT", {**VIT, "dim_head": 64}),
    ("t2t", "T2TViT", {"dim": 512, "image_size": 224, "depth": 2, "heads": 8, "mlp_dim": 1024, "num_classes": 1000,
                       "t2t_layers": ((7, 4), (3, 2), (3, 2))}),
    ("cct", "CCT", {"img_size": 224, "embedding_dim": 384, "n_conv_layers": 2, "kernel_size": 7, "stride": 2,
                    "padding": 3, "pooling_kernel_size": 3, "pooling_stride": 2, "pooling_padding": 1,
                    "num_layers": 2, "num_heads": 6, "mlp_ratio": 3.0, "num_classes": 1000,
                    "positional_embedding": "learnable"}),
    ("cross_vit", "CrossViT", {"image_size": 224, "num_classes": 1000, "depth": 1, "sm_dim": 192, "sm_patch_size": 16,
                               "sm_enc_depth": 1, "sm_enc_heads": 8, "sm_enc_mlp_dim": 768, "lg_dim": 384,
                               "lg_patch_size": 56, "lg_enc_depth": 1, "lg_enc_heads": 8, "lg_enc_mlp_dim": 1536,
                               "cross_attn_depth": 1, "cross_attn_heads": 8}),
    ("pit", "PiT", {"image_size": 224, "patch_size": 14, "dim": 256, "num_classes": 1000, "depth": (1, 1, 1),
                    "heads": 16, "mlp_dim": 1024}),
    ("levit", "LeViT", {"image_size": 224, "num_classes": 1000, "stages": 3, "dim": (256, 384, 512), "depth": 1,
                        "heads": (4, 6, 8), "mlp_mult": 2}),
    ("cvt", "CvT", {"num_classes": 1000, "s3_depth": 2}),
    ("twins_svt", "TwinsSVT", {"num_classes": 1000, "s3_depth": 2}),
    ("regionvit", "RegionViT", {"dim": (64, 128, 256, 512), "depth": (1, 1, 1, 1), "window_size": 7,
                                "num_classes": 1000}),
    ("crossformer", "CrossFormer", {"num_classes": 1000, "dim": (64, 128, 256, 512), "depth": (1, 1, 1, 1),
                                    "global_window_size": (8, 4, 2, 1), "local_window_size": 7}),
    ("scalable_vit", "ScalableViT", {"num_classes": 1000, "dim": 64, "heads": (2, 4, 8, 16), "depth": (1, 1, 1, 1),
                                     "ssa_dim_key": (40, 40, 40, 32), "reduction_factor": (8, 4, 2, 1),
                                     "window_size": (64, 32, None, None)}),
    ("sep_vit", "SepViT", {"num_classes": 1000, "dim": 32, "dim_head": 32, "heads": (1, 2, 4, 8),
                           "depth": (1, 1, 1, 1), "window_size": 7}),
    ("max_vit", "MaxViT", {"num_classes": 1000, "dim": 64, "dim_head": 32, "depth": (1, 1, 1, 1), "window_size": 7}),
    ("nest", "NesT", {"image_size": 224, "patch_size": 4, "dim": 96, "heads": 3, "num_hierarchies": 3,
                      "block_repeats": (1, 1, 2), "num_classes": 1000}),
    ("xcit", "XCiT", {**VIT, "dim": 384, "cls_depth": 1}),
    ("mobile_vit", "MobileViT", {"image_size": (256, 256), "dims": [96, 120, 144], "num_classes": 1000,
                                 "channels": [16, 32, 48, 48, 64, 64, 80, 80, 96, 96, 384]}),
    ("look_vit", "LookViT", {"dim": 512, "image_size": 512, "num_classes": 1000, "depth": 2, "highres_patch_size": 32,
                             "highres_window_size": 8}),
    ("jumbo_vit", "JumboViT", {"num_classes": 1000, "image_size": 64, "patch_size": 8, "dim": 16, "depth": 2,
                               "heads": 2, "mlp_dim": 64, "jumbo_cls_k": 3, "jumbo_ff_mult": 2}),
)  # fmt: skip

# pytorchcv: as published, with all layers, since its stages differ in width
CLASSIFIERS = (
    "vgg.bn_vgg11", "resnet.resnet18", "preresnet.preresnet18", "resnext.resnext14_16x4d",
    "seresnet.seresnet18", "senet.senet16", "densenet.densenet121", "dpn.dpn68",
    "shufflenet.shufflenet_g2_w1", "shufflenetv2.shufflenetv2_w1", "squeezenet.squeezenet_v1_1",
    "squeezenext.sqnxt23_w1", "mobilenet.mobilenet_w1", "mobilenetv3.mobilenetv3_small_w1",
    "mnasnet.mnasnet_b1", "darknet53.darknet53", "inceptionv4.inceptionv4", "xception.xception",
    "ghostnet.ghostnet", "hardnet.hardnet39ds", "hrnet.hrnet_w18_small_v1", "igcv3.igcv3_w1",
    "dla.dla34", "cbamresnet.cbam_resnet18", "bamresnet.bam_resnet18", "diaresnet.diaresnet18",
    "sknet.sknet50", "resnesta.resnesta18", "regnet.regnetx002", "peleenet.peleenet",
    "menet.menet108_8x1_g3", "airnet.airnet50_1x64d_r2", "ibnresnet.ibn_resnet50",
    "proxylessnas.proxylessnas_cpu", "vovnet.vovnet27s", "mixnet.mixnet_s",
    "efficientnet.efficientnet_b0", "nasnet.nasnet_4a1056", "tresnet.tresnet_m", "fishnet.fishnet99",
    "octresnet.octresnet10_ad2", "selecsls.selecsls42b", "dicenet.dicenet_w1", "spnasnet.spnasnet",
    "scnet.scnet50", "revnet.revnet38", "condensenet.condensenet74_c4_g4", "channelnet.channelnet",
    "fbnet.fbnet_cb", "bninception.bninception", "efficientnetedge.efficientnet_edge_small_b",
)  # fmt: skip
SEGMENTERS = (
    "bisenet.bisenet_resnet18_celebamaskhq", "fastscnn.fastscnn_cityscapes", "cgnet.cgnet_cityscapes",
    "dabnet.dabnet_cityscapes", "sinet.sinet_cityscapes", "lednet.lednet_cityscapes",
    "fpenet.fpenet_cityscapes", "edanet.edanet_cityscapes", "linknet.linknet_cityscapes",
    "contextnet.ctxnet_cityscapes", "esnet.esnet_cityscapes", "erfnet.erfnet_cityscapes",
)  # fmt: skip
IMAGE_SIZES = tuple((Variant(a, 224), Variant(b, 224)) for a, b in ((1, 4), (1, 8), (2, 16)))

# monai: networks for volumes and slices, narrow as in its tutorials
VOLUMES = (Variant(1, 32), Variant(2, 32))
SLICES = (Variant(1, 128), Variant(4, 128))
CUBE, SLICE = "float b 1 n n n", "float b 1 n n"


def _network(name: str, text: str, variants: tuple[Variant, ...], **arguments: object) -> ModelSpec:
    return ModelSpec(name, f"monai.networks.nets:{name}", {"0": text}, arguments, variants)


NETWORKS = (
    _network("UNet", CUBE, VOLUMES, spatial_dims=3, in_channels=1, out_channels=2, channels=(16, 32, 64),
         strides=(2, 2), num_res_units=2),
    _network("BasicUNet", CUBE, VOLUMES, spatial_dims=3, features=(32, 32, 64, 128, 256, 32)),
    _network("BasicUNetPlusPlus", SLICE, SLICES, spatial_dims=2, features=(32, 32, 64, 128, 256, 32)),
    _network("AttentionUnet", CUBE, VOLUMES, spatial_dims=3, in_channels=1, out_channels=2, channels=(16, 32, 64),
         strides=(2, 2)),
    _network("SegResNet", CUBE, VOLUMES, init_filters=16),
    _network("VNet", CUBE, VOLUMES),
    _network("DynUNet", CUBE, VOLUMES, spatial_dims=3, in_channels=1, out_channels=2, kernel_size=(3, 3, 3),
         strides=(1, 2, 2), upsample_kernel_size=(2, 2), filters=(32, 64, 128)),
    _network("UNETR", CUBE, VOLUMES, in_channels=1, out_channels=2, img_size=(32, 32, 32)),
    _network("SwinUNETR", CUBE, VOLUMES, in_channels=1, out_channels=2, feature_size=24, depths=(1, 1, 1, 1)),
    _network("HighResNet", CUBE, (Variant(1, 24), Variant(2, 24)), in_channels=1, out_channels=2),
    _network("DenseNet121", SLICE, SLICES, spatial_dims=2, in_channels=1, out_channels=2),
    _network("SENet154", SLICE, SLICES, spatial_dims=2, in_channels=1, num_classes=2),
    _network("EfficientNetBN", SLICE, SLICES, model_name="efficientnet-b0", in_channels=1, pretrained=False),
    _network("AutoEncoder", SLICE, SLICES, spatial_dims=2, in_channels=1, out_channels=1, channels=(32, 64, 128),
         strides=(2, 2, 2)),
    _network("MedNeXtS", CUBE, VOLUMES, spatial_dims=3, in_channels=1, out_channels=2),
    _network("AHNet", CUBE, VOLUMES, spatial_dims=3, in_channels=1, out_channels=2),
    _network("VQVAE", SLICE, SLICES, spatial_dims=2, in_channels=1, out_channels=1, channels=(64, 128)),
    _network("HoVerNet", "float b 3 n n", (Variant(1, 256),), out_classes=5, freeze_encoder=False),
    _network("RegUNet", SLICE, SLICES, spatial_dims=2, in_channels=1, num_channel_initial=16, depth=3),
    _network("GlobalNet", "float b 1 n n", SLICES, image_size=(128, 128), spatial_dims=2, in_channels=1,
         num_channel_initial=16, depth=3),
)  # fmt: skip

# torch-geometric: two layers on a graph of n nodes and eight edges for each
GRAPHS = (Variant(1, 1000), Variant(1, 4000))
SPARSE = (Variant(1, 1000), Variant(1, 4000), Variant(1, 2000), Variant(1, 3000))
NODES = {"x": "float n 128", "edge_index": "int1000 2 n*8"}
NET = {"in_channels": 128, "hidden_channels": 256, "num_layers": 2, "out_channels": 64}
CONVS = "torch_geometric.nn.conv"
CONV = {"in_channels": 128, "out_channels": 128}


def _net(name: str, **arguments: object) -> ModelSpec:
    return ModelSpec(name, f"torch_geometric.nn.models:{name}", NODES, {**NET, **arguments}, GRAPHS)


def _conv(name: str, **arguments: object) -> ModelSpec:
    return ModelSpec(name, f"{CONVS}:{name}", NODES, {**CONV, **arguments}, GRAPHS)


GRAPH_NETWORKS = (
    _net("GCN"),
    _net("GAT", heads=4),
    _net("GraphSAGE"),
    ModelSpec("GraphSAGE-std", "torch_geometric.nn.models:GraphSAGE", NODES, {**NET, "aggr": "std"}, SPARSE),
    _net("GIN"),
    _net("EdgeCNN"),
    _conv("TransformerConv", heads=4),
    _conv("ChebConv", K=3),
    _conv("SGConv", K=2),
    _conv("ARMAConv"),
    _conv("TAGConv"),
    _conv("LEConv"),
    ModelSpec("GatedGraphConv", f"{CONVS}:GatedGraphConv", NODES, {"out_channels": 128, "num_layers": 2}, GRAPHS),
    _conv("ResGatedGraphConv"),
    _conv("SuperGATConv", heads=4),
    _conv("GENConv"),
    _conv("GeneralConv"),
    _conv("FeaStConv", heads=4),
    _conv("ClusterGCNConv"),
)


def _vision_transformers() -> list[ModelSpec]:
    return [
        ModelSpec(f"{module}.{name}", f"vit_pytorch.{module}:{name}", {"0": "float b 3 n n"}, arguments,
                  VIT_SIZES[place % 2])
        for place, (module, name, arguments) in enumerate(VIT_TABLE)
    ]  # fmt: skip


def _convolutional() -> list[ModelSpec]:
    """Return classifiers at 224 pixels, and segmentation networks at 512."""
    rows = [(name, IMAGE_SIZES[place % 3], dict[str, Any]()) for place, name in enumerate(CLASSIFIERS)]
    rows += [(name, (Variant(1, 512), Variant(2, 512)), {"in_size": (512, 512)}) for name in SEGMENTERS]
    return [
        ModelSpec(name.partition(".")[2], f"pytorchcv.models.{name.replace('.', ':')}", {"0": "float b 3 n n"},
                  arguments, sizes)
        for name, sizes, arguments in rows
    ]  # fmt: skip


LIBRARIES: tuple[Library, ...] = (
    library("diffusers", "Apache-2.0", "diffusion", DENOISERS),
    library("vit-pytorch", "MIT", "vision", _vision_transformers()),
    library("pytorchcv", "MIT", "vision", _convolutional()),
    library("monai", "Apache-2.0", "medical", NETWORKS),
    library("torch-geometric", "MIT", "graph", GRAPH_NETWORKS),
)
