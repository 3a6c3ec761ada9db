"""A plain loop around small, randomly initialised models of transformers: one of each kind of
architecture that its users train. Not one line of these models was written with TTrace in mind.

    python zoo/loops/families.py --list
    python zoo/loops/families.py bert --autocast
    torchrun --nproc-per-node 2 zoo/loops/families.py mixtral
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch.nn.parallel import DistributedDataParallel

import ttrace

Batch = dict[str, Any]

ROWS, LENGTH, VOCABULARY, WIDTH = 8, 16, 96, 32
DATA = torch.Generator().manual_seed(1)
TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
VISION = {
    "hidden_size": WIDTH, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
}  # fmt: skip
SEQUENCES = {
    "vocab_size": VOCABULARY, "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT2 = {"n_embd": WIDTH, "n_layer": 2, "n_head": 4}
DEEPSEEK = {
    "num_key_value_heads": 4, "moe_intermediate_size": 16, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}  # fmt: skip
MAMBA2 = {
    "num_heads": 4, "head_dim": 16, "expand": 2, "state_size": 8, "n_groups": 1, "chunk_size": 8,
}  # fmt: skip
JAMBA = {
    "num_experts": 2, "use_mamba_kernels": False, "attn_layer_period": 2, "attn_layer_offset": 1,
    "expert_layer_period": 2, "expert_layer_offset": 1,
}  # fmt: skip
WAV2VEC2 = {
    "conv_dim": [16, 16], "conv_kernel": [4, 4], "conv_stride": [2, 2],
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4, "mask_time_prob": 0.0,
    "num_conv_pos_embedding_groups": 2, "layerdrop": 0.0, "ctc_loss_reduction": "mean",
}  # fmt: skip
SEGFORMER = {
    "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [16, 32],
    "patch_sizes": [7, 3], "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2],
    "decoder_hidden_size": 32, "num_labels": 4,
}  # fmt: skip
MAE = {
    **VISION, "decoder_hidden_size": 16, "decoder_num_hidden_layers": 1,
    "decoder_num_attention_heads": 2, "decoder_intermediate_size": 32,
}  # fmt: skip


def tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (ROWS, length), generator=DATA)


def classes(*shape: int) -> torch.Tensor:
    return torch.randint(2, (ROWS, *shape), generator=DATA)


def pixels(*shape: int) -> torch.Tensor:
    return torch.randn(ROWS, *(shape or (3, 32, 32)), generator=DATA)


def causal() -> Batch:
    ids = tokens()
    return {"input_ids": ids, "labels": ids}


def masked() -> Batch:
    """Five positions of each row are to be found, and two at its end are padding."""
    ids = tokens()
    found = torch.rand(ids.shape, generator=DATA).argsort(1)[:, :5]
    hidden = torch.zeros_like(ids).bool().scatter(1, found, True)
    attended = torch.ones_like(ids)
    attended[:, -2:] = 0
    labels = ids.masked_fill(~hidden, -100)
    return {"input_ids": ids.masked_fill(hidden, 3), "labels": labels, "attention_mask": attended}


def images() -> Batch:
    return {"pixel_values": pixels(), "labels": classes()}


# Name -> the model's class without its last words, its configuration, its data. The configuration's
# class is named like the model's.
Family = tuple[str, str, dict[str, Any], Callable[[], Batch]]
CAUSAL = "ForCausalLM"
MASKED = "ForMaskedLM"
IMAGES = "ForImageClassification"
FAMILIES: dict[str, Family] = {
    "albert": ("Albert", MASKED, {**TEXT, "embedding_size": 16}, masked),
    "bart": ("Bart", "ForConditionalGeneration",
             {**SEQUENCES, "max_position_embeddings": 64, "decoder_start_token_id": 2},
             lambda: {"input_ids": tokens(), "labels": tokens()}),
    "bert": ("Bert", MASKED, TEXT, masked),
    "bloom": ("Bloom", CAUSAL, {**TEXT, "n_layer": 2, "n_head": 4}, causal),
    "cohere": ("Cohere", CAUSAL, TEXT, causal),
    "convnext": ("ConvNext", IMAGES,
                 {"num_stages": 2, "hidden_sizes": [16, 32], "depths": [1, 2], "patch_size": 2},
                 images),
    "deberta": ("DebertaV2", MASKED, TEXT, masked),
    "deepseek3": ("DeepseekV3", CAUSAL, {**TEXT, **DEEPSEEK}, causal),
    "distilbert": ("DistilBert", MASKED,
                   {**TEXT, "dim": WIDTH, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}, masked),
    "electra": ("Electra", MASKED, {**TEXT, "embedding_size": 16}, masked),
    "fnet": ("FNet", MASKED, TEXT, causal),
    "gemma2": ("Gemma2", CAUSAL, {**TEXT, "head_dim": 8, "sliding_window": 4}, causal),
    "gpt2": ("GPT2", "LMHeadModel", {**TEXT, **GPT2, "n_positions": 64}, causal),
    "gptneox": ("GPTNeoX", CAUSAL, TEXT, causal),
    "gptoss": ("GptOss", CAUSAL,
               {**TEXT, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2}, causal),
    "granite": ("Granite", CAUSAL, TEXT, causal),
    "jamba": ("Jamba", CAUSAL, {**TEXT, **JAMBA}, causal),
    "longformer": ("Longformer", MASKED, {**TEXT, "attention_window": 4}, masked),
    "mamba": ("Mamba", CAUSAL, {**TEXT, "state_size": 8}, causal),
    "mamba2": ("Mamba2", CAUSAL, {**TEXT, **MAMBA2}, causal),
    "mixtral": ("Mixtral", CAUSAL, {**TEXT, "num_local_experts": 4}, causal),
    "modernbert": ("ModernBert", MASKED, {**TEXT, "cls_token_id": 1, "sep_token_id": 2}, masked),
    "opt": ("OPT", CAUSAL, {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": WIDTH}, causal),
    "phi": ("Phi", CAUSAL, TEXT, causal),
    "qwen3": ("Qwen3", CAUSAL, {**TEXT, "head_dim": 8}, causal),
    "qwen3moe": ("Qwen3Moe", CAUSAL,
                 {**TEXT, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
                  "moe_intermediate_size": 32}, causal),
    "resnet": ("ResNet", IMAGES,
               {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 2],
                "layer_type": "basic"}, images),
    "roberta": ("Roberta", MASKED, TEXT, masked),
    "rwkv": ("Rwkv", CAUSAL, {**TEXT, "attention_hidden_size": WIDTH}, causal),
    "segformer": ("Segformer", "ForSemanticSegmentation", SEGFORMER,
                  lambda: {"pixel_values": pixels(), "labels": classes(32, 32)}),
    "swin": ("Swin", IMAGES,
             {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2],
              "num_heads": [2, 4], "window_size": 4}, images),
    "t5": ("T5", "ForConditionalGeneration",
           {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_kv": 8, "d_ff": 64, "num_layers": 2,
            "num_heads": 4, "decoder_start_token_id": 0},
           lambda: {"input_ids": tokens(), "labels": tokens(8)}),
    "timesformer": ("Timesformer", "ForVideoClassification",
                    {**VISION, "image_size": 16, "num_frames": 2},
                    lambda: {"pixel_values": pixels(2, 3, 16, 16), "labels": classes()}),
    "vit": ("ViT", IMAGES, VISION, images),
    "vitmae": ("ViTMAE", "ForPreTraining", MAE, lambda: {"pixel_values": pixels()}),
    "wav2vec2": ("Wav2Vec2", "ForCTC", {**TEXT, **WAV2VEC2},
                 lambda: {"input_values": pixels(256), "labels": tokens(5)}),
    "whisper": ("Whisper", "ForConditionalGeneration",
                {**SEQUENCES, "num_mel_bins": 8, "max_source_positions": 16,
                 "max_target_positions": 32, "decoder_start_token_id": 1, "suppress_tokens": None,
                 "begin_suppress_tokens": None},
                lambda: {"input_features": pixels(8, 32), "labels": tokens()}),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", nargs="?", choices=FAMILIES)
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--autocast", action="store_true", help="in bfloat16")
    parser.add_argument("--device", default="cpu", help="all ranks share a GPU")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    if options.list:
        print(*FAMILIES)
        return
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if ranks > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    name, purpose, settings, data = FAMILIES[options.family]
    config = getattr(transformers, f"{name}Config")(**settings)
    model = getattr(transformers, name + purpose)(config).train().to(options.device)
    if ranks > 1:
        model = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ttrace.attach(model, optimizer)
    for step in range(options.steps):
        batch = {k: v.chunk(ranks)[rank].to(options.device) for k, v in data().items()}
        with torch.autocast(options.device, torch.bfloat16, enabled=options.autocast):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
