"""Write a tiny random-weight model that vLLM serves on a CPU in seconds.

tiny.py DIR [--arch gemma3|llama|lfm2] [--layers N] [--full-every K] [--window W] [--layer-types f,s,..]
gemma3: every K-th layer is full attention, the others slide over W tokens; the mix sets how many KV cache
groups vLLM makes. lfm2: the others are short convolutions, whose state a group of its own keeps.
Serve it with --load-format dummy.
"""
import argparse
import json
import os

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

p = argparse.ArgumentParser()
p.add_argument("dir")
p.add_argument("--arch", default="gemma3", choices=["gemma3", "llama", "lfm2"])
p.add_argument("--layers", type=int, default=12)
p.add_argument("--full-every", type=int, default=6)
p.add_argument("--window", type=int, default=512)
p.add_argument("--layer-types", help="comma-separated list of f (full) and s (the other kind), in place of --full-every")
a = p.parse_args()
os.makedirs(a.dir, exist_ok=True)
common = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=a.layers, num_attention_heads=4, num_key_value_heads=2,
              head_dim=32, vocab_size=2048, max_position_embeddings=32768, rms_norm_eps=1e-6, torch_dtype="bfloat16",
              bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=True)
if a.arch == "llama":
    cfg = dict(common, architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", rope_theta=10000.0)
else:
    other = "conv" if a.arch == "lfm2" else "sliding_attention"
    short = {"f": "full_attention", "s": other}
    types = ([short[x] for x in a.layer_types.split(",")] if a.layer_types else
             ["full_attention" if (i + 1) % a.full_every == 0 else other for i in range(a.layers)])
    cfg = dict(common, architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", hidden_activation="gelu_pytorch_tanh",
               query_pre_attn_scalar=32, sliding_window=a.window, layer_types=types, num_hidden_layers=len(types),
               rope_theta=1000000.0, rope_local_base_freq=10000.0)
    if a.arch == "lfm2":
        cfg = dict(common, architectures=["Lfm2ForCausalLM"], model_type="lfm2", layer_types=types,
                   num_hidden_layers=len(types), conv_L_cache=3, conv_bias=False, conv_dim=64, block_dim=64, block_ff_dim=128,
                   block_auto_adjust_ff_dim=False, block_multiple_of=64,
                   block_ffn_dim_multiplier=1.0, norm_eps=1e-5, rope_theta=1000000.0)
json.dump(cfg, open(os.path.join(a.dir, "config.json"), "w"), indent=1)
vocab = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3} | {f"w{i}": i for i in range(4, 2048)}
t = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>").save_pretrained(a.dir)
