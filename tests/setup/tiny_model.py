"""Makes a tiny target and a draft whose agreement can be set; runs in the vLLM environment.

    python tiny_model.py FOLDER --hidden 1024 --layers 12 --draft-layers 1 --damping 0.05

The target is a randomly initialised Qwen3. Its layers past the first few are damped: what they add to the
residual stream is scaled down, so that a draft made of those first layers alone predicts nearly the same
tokens. The smaller the factor, the more drafted tokens are accepted. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

VOCABULARY = 2048
HEAD = 64  # width of an attention head
# Random weights give nearly flat logits and layers that add next to nothing: with these the greedy choice
# is sharp enough to agree on, and changes from token to token.
LOGIT_SCALE, LAYER_SCALE = 8.0, 6.0


def make(folder: Path, hidden: int, layers: int, draft_layers: int, damping: float, seed: int) -> None:
    """Write FOLDER/target and FOLDER/draft: weights, configuration and a tokenizer of words t0, t1, …"""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    def config(depth: int) -> Qwen3Config:
        return Qwen3Config(
            vocab_size=VOCABULARY,
            hidden_size=hidden,
            intermediate_size=3 * hidden,
            num_hidden_layers=depth,
            num_attention_heads=hidden // HEAD,
            num_key_value_heads=max(1, hidden // HEAD // 2),
            head_dim=HEAD,
            max_position_embeddings=4096,
            tie_word_embeddings=False,
        )

    torch.manual_seed(seed)
    target = Qwen3ForCausalLM(config(layers)).to(torch.bfloat16)
    with torch.no_grad():
        target.lm_head.weight.mul_(LOGIT_SCALE)
        for depth, layer in enumerate(target.model.layers):
            scale = LAYER_SCALE * (1.0 if depth < draft_layers else damping)
            layer.self_attn.o_proj.weight.mul_(scale)
            layer.mlp.down_proj.weight.mul_(scale)

    draft = Qwen3ForCausalLM(config(draft_layers)).to(torch.bfloat16)
    draft.load_state_dict({name: w for name, w in target.state_dict().items() if _kept(name, draft_layers)})
    tokenizer = _tokenizer()
    for name, model in (("target", target), ("draft", draft)):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        for file in (folder / name).iterdir():
            file.chmod(0o644)  # pods that mount them run as another user


def _kept(weight: str, draft_layers: int) -> bool:
    prefix, _, rest = weight.partition("model.layers.")
    return bool(prefix) or not rest or int(rest.partition(".")[0]) < draft_layers


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"t{token}": token for token in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="t0", eos_token="t1", pad_token="t2")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hidden", type=int, required=True)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--draft-layers", type=int, required=True)
    parser.add_argument("--damping", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    make(args.folder, args.hidden, args.layers, args.draft_layers, args.damping, args.seed)


if __name__ == "__main__":
    main()
