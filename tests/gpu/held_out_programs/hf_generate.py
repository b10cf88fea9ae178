"""The usual hand-made generate loop around a Hugging Face model: eager, batch 1, a growing cache, greedy."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from contract import Record, arguments, now, ranges, split

VOCABULARY = 32000
PROMPTS = (96, 700, 33, 250)
WARM_UP_PROMPT, WARM_UP_TOKENS = 128, 6


def build():
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22,
                         num_attention_heads=32, num_key_value_heads=4, max_position_embeddings=2048)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model.eval().requires_grad_(False)


@torch.inference_mode()
def generate(model, prompt, new_tokens, record, mark, warm_up=False):
    """One token from the prompt and `new_tokens` more."""
    start = now()
    with mark("generate"):
        cache = DynamicCache()
        output = []
        with mark("generate_token"):
            ids = torch.tensor([prompt], device="cuda")
            logits = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
            token = logits[:, -1].argmax(-1, keepdim=True)
            output.append(token.item())
        first = now()
        record.step("prefill", start, first, len(prompt), 1, warm_up)
        end = first
        for _ in range(new_tokens):
            step = now()
            with mark("generate_token"):
                logits = model(input_ids=token, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
                token = logits[:, -1].argmax(-1, keepdim=True)
                output.append(token.item())
            end = now()
            record.step("decode", step, end, 1, 1, warm_up)
    record.request(start, first, end, len(prompt), len(output), warm_up)
    assert cache.get_seq_length() == len(prompt) + new_tokens
    assert all(0 <= value < VOCABULARY for value in output)
    assert torch.isfinite(logits).all().item()


def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = build()
    torch.cuda.synchronize()

    def prompt(length):
        return [rng.randrange(3, VOCABULARY) for _ in range(length)]

    generate(model, prompt(WARM_UP_PROMPT), WARM_UP_TOKENS, record, mark, warm_up=True)
    for length, count in zip(PROMPTS, split(args.steps, len(PROMPTS))):
        generate(model, prompt(length), count, record, mark)
    record.finish()


if __name__ == "__main__":
    main()
