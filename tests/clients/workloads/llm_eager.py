"""Eager generation with Hugging Face transformers: a prefill, then one token at a time, waited for after each.

Keeps its own timers of every prefill (TTFT) and every step (TPOT), and prints their medians in a RESULT line.
"""
import argparse
import statistics
import time

START = time.perf_counter()

import torch

from models import MODELS, build, vocabulary
from timing import print_result, shift_memory, stage, take_turns, torch_profiler, torch_profiler_again


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.1-8b", choices=MODELS)
    parser.add_argument("--layers", type=int, default=0, help="fewer layers than the model has")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=32, help="decode steps per request")
    parser.add_argument("--iters", type=int, default=3, help="measured requests")
    parser.add_argument("--seconds", type=float, default=0, help="go on with requests until the program is that old")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--turns", type=int, default=0, help="at most so many turns, each asked for on stdin")
    parser.add_argument("--trace", default="", help="record the measured requests with torch.profiler into this file")
    parser.add_argument("--trace-again", default="", metavar="FOLDER",
                        help="after each of the requests one more, without ranges and with torch.profiler")
    parser.add_argument("--shift", type=int, default=0, metavar="STEPS", help="have tensors lie elsewhere in memory")
    parser.add_argument("--trace-full", action="store_true", help="with input shapes and Python stacks")
    return parser.parse_args()


def main():
    args = options()
    torch.manual_seed(0)
    shifted = shift_memory(args.shift)
    model = build(args.model, args.layers)
    prompt = torch.randint(0, vocabulary(args.model), (args.batch, args.prompt), device="cuda")
    ttft_ms, step_ms = [], []

    def timed(name, measured, times, work):
        begin = time.perf_counter()
        with stage(name, measured):
            out = work()
            token = out.logits[:, -1:].argmax(-1)
            torch.cuda.synchronize()
        if measured:
            times.append(1e3 * (time.perf_counter() - begin))
        return token, out.past_key_values

    def generate(measured):
        torch.cuda.synchronize()
        token, cache = timed("prefill", measured, ttft_ms, lambda: model(prompt, use_cache=True, logits_to_keep=1))
        for _ in range(args.new):
            token, cache = timed("decode_step", measured, step_ms,
                                 lambda: model(token, past_key_values=cache, use_cache=True))

    def measure(requests):
        ttft_ms.clear()
        step_ms.clear()
        with torch_profiler(args.trace, args.trace_full):
            done = 0
            while done < requests or time.perf_counter() - START < args.seconds:
                generate(measured=True)
                done += 1
                if args.trace_again:
                    with torch_profiler_again(args.trace_again):
                        generate(measured=False)
        print_result(args.trace, model=args.model, layers=args.layers, batch=args.batch, prompt=args.prompt,
                     new=args.new, ttft_ms=statistics.median(ttft_ms), tpot_ms=statistics.median(step_ms),
                     tpot_mean_ms=statistics.fmean(step_ms), steps=len(step_ms))

    with torch.inference_mode():
        for _ in range(args.warmup):
            generate(measured=False)
        torch.cuda.synchronize()
        take_turns(args.turns, measure, args.iters)
    del shifted


if __name__ == "__main__":
    main()
