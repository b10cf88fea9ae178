"""Programs that nobody warmed up, with their own clocks.

    cold_start.py requests     --requests N: prompts and steps of an eager TinyLlama, the first ones cold; ranges
    cold_start.py preprocess   the same behind a `preprocess` range in which the CPU works for 60 ms
    cold_start.py batching     transformers' continuous batching of 24 requests, without ranges
    cold_start.py copies       host-to-device copies of 64 MiB, pinned, and a product each: no language model

Prints RESULT {...}: every TTFT, and the times of the steps of every request, in ms.
"""
import argparse
import json
import time

import torch
from torch.cuda import nvtx

import models

PROMPT, NEW, PREPROCESS_S = 256, 24, 0.06


def timed(of, times):
    begin = time.perf_counter()
    out = of()
    torch.cuda.synchronize()
    times.append(1e3 * (time.perf_counter() - begin))
    return out


def preprocess(vocabulary):
    end, words = time.perf_counter() + PREPROCESS_S, []
    while time.perf_counter() < end:
        words = [hash(("word", i)) % vocabulary for i in range(PROMPT)]
    return torch.tensor([words], device="cuda")


def requests(count, prepared):
    model = models.build("tinyllama-1.1b", layers=4 if prepared else 0)
    vocabulary = model.config.vocab_size
    ids = torch.randint(0, vocabulary, (1, PROMPT), device="cuda")
    torch.cuda.synchronize()
    ttft, steps = [], []

    def step(inputs, **more):
        out = model(inputs, use_cache=True, **more)
        return out.logits[:, -1:].argmax(-1), out.past_key_values

    def first():
        inputs = ids
        if prepared:
            with nvtx.range("preprocess"):
                inputs = preprocess(vocabulary)
        with nvtx.range("prefill"):
            out = step(inputs, logits_to_keep=1)
            torch.cuda.synchronize()
            return out

    def next_one(token, cache):
        with nvtx.range("decode_step"):
            out = step(token, past_key_values=cache)
            torch.cuda.synchronize()
            return out

    for _ in range(count):
        token, cache = timed(first, ttft)
        steps.append([])
        for _ in range(NEW):
            token, cache = timed(lambda t=token, c=cache: next_one(t, c), steps[-1])
    return {"ttft_ms": ttft, "steps_ms": steps}


def batching(count):
    from transformers import GenerationConfig  # pylint: disable=import-outside-toplevel
    model = models.build("tinyllama-1.1b")
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(40, 400, (count,), generator=generator).tolist()
    prompts = [torch.randint(3, model.config.vocab_size, (n,), generator=generator).tolist() for n in lengths]
    config = GenerationConfig(max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0, bos_token_id=1)
    begin = time.perf_counter()
    done = model.generate_batch(inputs=prompts, generation_config=config, progress_bar=False)
    torch.cuda.synchronize()
    tokens = sum(len(output.generated_tokens) for output in done.values())
    return {"requests": len(done), "tokens": tokens, "tokens_per_s": tokens / (time.perf_counter() - begin)}


def copies(count):
    source = torch.ones(32 << 20, dtype=torch.bfloat16).pin_memory()
    target = torch.empty_like(source, device="cuda")
    weight = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        target.copy_(source, non_blocking=True)
        torch.mm(target[:1 << 22].view(2048, 2048), weight)
    torch.cuda.synchronize()
    return {"gbs": count * source.nbytes / (time.perf_counter() - begin) / 1e9}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["requests", "preprocess", "batching", "copies"])
    parser.add_argument("--requests", type=int, default=0)
    args = parser.parse_args()
    with torch.inference_mode():
        if args.what == "batching":
            result = batching(args.requests or 24)
        elif args.what == "copies":
            result = copies(args.requests or 60)
        else:
            result = requests(args.requests or 10, args.what == "preprocess")
    print("RESULT " + json.dumps(result), flush=True)


main()
