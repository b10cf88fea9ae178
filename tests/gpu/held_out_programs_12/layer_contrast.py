"""transformers' Llama, whose last layer's chances are set against those of the earlier layer that differs the most (DoLa).

A step is one call of the model and the choice of a token, until the second `.item()` has it: a prefill step takes in one prompt,
a decode step the token before. The first `.item()` says which of six earlier layers is taken. A request is one text. With
--ranges a text has "essay" around it, inside are "task" for the prefill step and "next" for each decode step, and in both
"layers" around the choice.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import math
from functools import partial

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from contract import Record, arguments, ranges
from parts import begun, in_bands, on_gpu, prompt, told

VOCABULARY, EARLY = 32000, (2, 4, 6, 8, 10, 12)
BANDS = ((90, 150), (380, 520), (200, 300), (40, 70))  # of prompt lengths, by turns


def llama():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=1792, intermediate_size=4864, num_hidden_layers=26, num_attention_heads=14,
        num_key_value_heads=2, max_position_embeddings=2048, attn_implementation="eager"))


class Writer:
    def __init__(self, mark):
        self.mark, self.model = mark, on_gpu(llama)

    def prefill(self, tokens):
        self.past = None
        return self.next(torch.tensor([tokens]).to("cuda"))

    def decode(self, place):
        return self.next(self.ids[None])

    def next(self, ids):
        out = self.model(input_ids=ids, past_key_values=self.past, use_cache=True, output_hidden_states=True)
        self.past = out.past_key_values
        with self.mark("layers"):
            last = out.logits[0, -1].float().log_softmax(-1)
            states = torch.stack([out.hidden_states[i][0, -1] for i in EARLY])
            early = self.model.lm_head(self.model.model.norm(states)).float().log_softmax(-1)
            middle = ((last.exp() + early.exp()) / 2).log()
            apart = (last.exp() * (last - middle)).sum(-1) + (early.exp() * (early - middle)).sum(-1)
            chosen = apart.argmax().item()
            scores = (last - early[chosen]).masked_fill(last < last.max() + math.log(0.1), -math.inf)
            self.last = last
            self.ids = torch.multinomial(scores.softmax(-1), 1)
            return self.ids.item()


def write(writer, record, mark, tokens, steps, number, warm_up=False):
    told(record, mark, ("essay", "task", "next"), VOCABULARY, writer.prefill, writer.decode, tokens, steps, warm_up)
    assert bool(torch.isfinite(writer.last).all())


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    chance, writer = begun(options.seed), Writer(mark)
    torch.cuda.synchronize()
    write(writer, record, mark, prompt(chance, VOCABULARY, 110), 4, None, warm_up=True)
    in_bands(partial(write, writer, record, mark), chance, VOCABULARY, BANDS, options.steps, 3, 25)
    record.finish()


main()
