"""Batches of eight texts, padded on the left, sampled from a Hugging Face model until each has ended; cold."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from contract import Record, arguments, now, ranges, split

VOCABULARY, BATCH = 32000, 8
PAD = 0
STOP = 100                      # tokens below this one end a text, so that some texts do end
TEMPERATURE, TOP = 0.9, 2000


def build():
    config = LlamaConfig(vocab_size=VOCABULARY, hidden_size=2048, intermediate_size=5632, num_hidden_layers=16,
                         num_attention_heads=16, num_key_value_heads=8, max_position_embeddings=2048)
    config._attn_implementation = "eager"
    torch.set_default_dtype(torch.float16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    return model.eval().requires_grad_(False)


def sample(logits):
    values, indices = torch.topk(logits.float() / TEMPERATURE, TOP, dim=-1)
    choice = torch.multinomial(torch.softmax(values, dim=-1), 1)
    return indices.gather(-1, choice)


class Batch:
    """What the host knows of the eight texts."""

    def __init__(self, prompts):
        self.prompts = prompts
        self.outputs = [[] for _ in prompts]
        self.ends = [None] * len(prompts)

    def running(self):
        return sum(end is None for end in self.ends)

    def file(self, values, finished, time):
        for row, end in enumerate(self.ends):
            if end is None:
                self.outputs[row].append(values[row])
                if finished[row]:
                    self.ends[row] = time


@torch.inference_mode()
def run(model, prompts, most, record, mark, cold):
    """At most `most` decode steps; returns how many there were."""
    batch = Batch(prompts)
    start = now()
    with mark("prepare_inputs"):
        width = max(len(prompt) for prompt in prompts)
        ids = torch.tensor([[PAD] * (width - len(prompt)) + prompt for prompt in prompts], device="cuda")
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device="cuda")
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        cache = DynamicCache()
    with mark("forward"):
        logits = model(input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True,
                       logits_to_keep=1).logits[:, -1]
    with mark("sample"):
        tokens = sample(logits)
        finished = tokens < STOP
        values, over = tokens.flatten().tolist(), finished.flatten().tolist()
    first = now()
    record.step("prefill", start, first, sum(len(prompt) for prompt in prompts), BATCH, cold)
    batch.file(values, over, first)
    positions = positions[:, -1:]
    end, steps = first, 0
    while steps < most and batch.running():
        running = batch.running()
        step = now()
        with mark("forward"):
            mask = torch.cat([mask, mask.new_ones(BATCH, 1)], dim=1)
            positions = positions + 1
            logits = model(input_ids=tokens, attention_mask=mask, position_ids=positions, past_key_values=cache,
                           use_cache=True, logits_to_keep=1).logits[:, -1]
        with mark("sample"):
            tokens = torch.where(finished, PAD, sample(logits))
            finished = finished | (tokens < STOP)
            everybody = finished.all().item()
            values, over = tokens.flatten().tolist(), finished.flatten().tolist()
        end = now()
        record.step("decode", step, end, running, running, cold and steps == 0)
        batch.file(values, over, end)
        steps += 1
        assert everybody == (batch.running() == 0)
    for prompt, output, ended in zip(prompts, batch.outputs, batch.ends):
        record.request(start, first, ended or end, len(prompt), len(output), cold)
        assert output and all(0 <= value < VOCABULARY for value in output)
    assert torch.isfinite(logits).all().item()
    return steps


def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = build()
    torch.cuda.synchronize()
    left, most, cold = args.steps, max(split(args.steps, 2)), True
    while left:
        prompts = [[rng.randrange(STOP, VOCABULARY) for _ in range(rng.randint(40, 240))] for _ in range(BATCH)]
        left -= run(model, prompts, min(left, most), record, mark, cold)
        cold = False
    record.finish()


if __name__ == "__main__":
    main()
