"""Decode as inference servers run it: each step is one CUDA graph over a static cache, queued without waiting.

Every step attends to the whole cache of --ctx + 1 tokens and more room; its time comes from CUDA events between steps.
The median is printed in a RESULT line.
"""
import argparse
import statistics

import torch

from models import MODELS, build, vocabulary
from timing import print_result, shift_memory, stage, take_turns, torch_profiler, torch_profiler_again

CAPTURE_WARM_UP = 3


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama-3.1-8b", choices=MODELS)
    parser.add_argument("--layers", type=int, default=0, help="fewer layers than the model has")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--steps", type=int, default=32, help="steps of one round")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds")
    parser.add_argument("--turns", type=int, default=0, help="at most so many turns, each asked for on stdin")
    parser.add_argument("--trace", default="", help="record the measured rounds with torch.profiler into this file")
    parser.add_argument("--trace-again", default="", metavar="FOLDER",
                        help="after each of the rounds one more, without ranges and with torch.profiler")
    parser.add_argument("--shift", type=int, default=0, metavar="STEPS", help="have tensors lie elsewhere in memory")
    parser.add_argument("--trace-full", action="store_true", help="with input shapes and Python stacks")
    return parser.parse_args()


def main():
    args = options()
    from transformers import StaticCache
    torch.manual_seed(0)
    shifted = shift_memory(args.shift)
    model = build(args.model, args.layers)
    # The cache counts the steps it is asked for, those of the warm-up and of every replay included.
    again = args.rounds if args.trace_again else 0
    room = args.steps * (args.rounds * max(args.turns, 1) + again + 1) + CAPTURE_WARM_UP + 8
    with torch.inference_mode():
        cache = StaticCache(config=model.config, max_batch_size=args.batch, max_cache_len=args.ctx + room, device="cuda",
                            dtype=torch.bfloat16)
        prompt = torch.randint(0, vocabulary(args.model), (args.batch, args.ctx), device="cuda")
        model(prompt, past_key_values=cache, cache_position=torch.arange(args.ctx, device="cuda"), use_cache=True,
              logits_to_keep=1)
        token = torch.zeros((args.batch, 1), dtype=torch.long, device="cuda")
        position = torch.tensor([args.ctx], device="cuda")

        def step():
            return model(token, past_key_values=cache, cache_position=position, use_cache=True).logits

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(CAPTURE_WARM_UP):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = step()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(args.steps + 1)]

        def decode(measured):
            torch.cuda.synchronize()
            marks[0].record()
            for i in range(args.steps):
                with stage("decode_step", measured):
                    graph.replay()
                    token.copy_(logits[:, -1:].argmax(-1))
                marks[i + 1].record()
            torch.cuda.synchronize()
            return [marks[i].elapsed_time(marks[i + 1]) for i in range(args.steps)]

        decode(measured=False)

        def measure(rounds):
            with torch_profiler(args.trace, args.trace_full):
                steps = []
                for _ in range(rounds):
                    steps += decode(measured=True)
                    if args.trace_again:
                        with torch_profiler_again(args.trace_again):
                            decode(measured=False)
            print_result(args.trace, model=args.model, layers=args.layers, batch=args.batch, ctx=args.ctx,
                         tpot_ms=statistics.median(steps), tpot_mean_ms=statistics.fmean(steps), steps=len(steps))

        take_turns(args.turns, measure, args.rounds)
    del shifted


if __name__ == "__main__":
    main()
