"""Documents in, a few words of label out, by transformers' Qwen2 and the greedy loop that many a notebook has.

A step is one call of the model and the choice of the likeliest token, until `.item()` has it on the host: a prefill
step takes in a whole document, a decode step the last token, sent up anew. The mask of ones grows by `torch.cat` in
each step, and the head runs over all places of a document, since nobody asked it not to. A request is one document.
With --ranges each call of the model has "model" around it and each `.item()` "wait", side by side, and no range is
around a step.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
from transformers import DynamicCache, Qwen2Config, Qwen2ForCausalLM

from contract import Record, arguments, now, ranges, split

VOCABULARY = 65536
LENGTHS = (90, 720, 240, 64, 510, 768, 150, 380)  # about these, by turns


def build():
    config = Qwen2Config(vocab_size=VOCABULARY, hidden_size=1536, intermediate_size=8960, num_hidden_layers=24,
                         num_attention_heads=12, num_key_value_heads=2, max_position_embeddings=2048,
                         tie_word_embeddings=True, bos_token_id=None, eos_token_id=None)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen2ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model.eval()


def label(model, record, mark, document, steps, warm_up=False):
    length, words = len(document), []
    start = begin = now()
    cache = DynamicCache()
    ids = torch.tensor([document], device="cuda")
    seen = torch.ones_like(ids)
    first = None
    for i in range(steps + 1):
        if i:
            begin = now()
            ids = torch.tensor([words[-1:]], device="cuda")
            seen = torch.cat((seen, seen.new_ones(1, 1)), 1)
        with mark("model"):
            logits = model(input_ids=ids, attention_mask=seen, past_key_values=cache, use_cache=True).logits
            token = logits[0, -1].argmax()
        with mark("wait"):
            words.append(token.item())
        end = now()
        if first is None:
            first = end
        record.step("decode" if i else "prefill", begin, end, 1 if i else length, 1, warm_up)
    record.request(start, first, end, length, len(words), warm_up)
    assert cache.get_seq_length() == length + steps
    assert all(0 <= word < VOCABULARY for word in words) and bool(torch.isfinite(logits[0, -1]).all())


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    torch.backends.cuda.enable_cudnn_sdp(False)  # else a plan is built for each length
    chance, model = random.Random(options.seed), build()
    torch.cuda.synchronize()

    def document(about):
        length = min(768, max(64, about + chance.randrange(-20, 21)))
        return [chance.randrange(VOCABULARY) for _ in range(length)]

    label(model, record, mark, document(300), 3, warm_up=True)
    for number, steps in enumerate(split(options.steps, max(3, min(40, options.steps // 5)))):
        label(model, record, mark, document(LENGTHS[number % len(LENGTHS)]), steps)
    record.finish()


main()
