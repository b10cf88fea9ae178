"""A decoder of random weights, a step of which can be made longer on purpose: the program that diff_test.py compares.

eager: launched kernel by kernel, the step waits for the host. graph: a step is one CUDA graph, and takes what the GPU takes.
products: prompts of which most is large products. Of zeros they take little power; of random numbers, with the same kernels and
shapes, as much as the GPU may draw, so that it lowers its clock.
A request is a prompt and --steps tokens, each waited for. Prints the medians of its own timers in a RESULT line; with
--calibrate, what one launch, wait and loop more take instead, by steps with and without them in turns.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

SHAPES = {"eager": dict(layers=16, hidden=1024, heads=16), "graph": dict(layers=12, hidden=4096, heads=32),
          "products": dict(layers=12, hidden=4096, heads=32)}
CYCLES = 20_000  # that the kernel takes in every layer, of which --kernel-us makes the same kernel a longer one
CYCLES_PER_US = 1980  # at the H100's and H200's highest clock
DTYPE = torch.bfloat16


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=SHAPES, default="eager")
    parser.add_argument("--steps", type=int, default=120, help="tokens of each request")
    parser.add_argument("--requests", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4, help="sequences")
    parser.add_argument("--kernel-us", type=float, default=0, help="a kernel that is there anyway takes longer, us of a step")
    parser.add_argument("--host-loops", type=int, default=0, help="Python code between two steps: times round a loop")
    parser.add_argument("--launches", type=int, default=0, help="more small kernels in a step")
    parser.add_argument("--waits", type=int, default=0, help="waits for the GPU amid a step (eager)")
    parser.add_argument("--zeros", action="store_true", help="weights and prompts of zeros, whose products take little power")
    parser.add_argument("--calibrate", action="store_true")
    return parser.parse_args()


class Decoder:
    def __init__(self, args):
        shape = SHAPES[args.mode]
        self.args, self.heads, hidden = args, shape["heads"], shape["hidden"]
        self.longest = args.prompt + args.steps + 8
        make = lambda *size: torch.randn(*size, device="cuda", dtype=DTYPE) * (0 if args.zeros else 0.02)
        self.layers = [dict(norm=torch.ones(hidden, device="cuda", dtype=DTYPE), qkv=make(3 * hidden, hidden), out=make(hidden, hidden),
                            gate=make(3 * hidden, hidden), down=make(hidden, 3 * hidden)) for _ in range(shape["layers"])]
        self.head = make(8192, hidden)
        self.embedding = make(8192, hidden)
        cache = (args.batch, self.heads, self.longest, hidden // self.heads)
        self.caches = [(torch.zeros(cache, device="cuda", dtype=DTYPE), torch.zeros(cache, device="cuda", dtype=DTYPE)) for _ in self.layers]
        self.one = torch.ones(16, device="cuda")
        self.cycles = CYCLES + int(args.kernel_us * CYCLES_PER_US / shape["layers"])
        self.launches = args.launches
        self.wait(args.waits)

    def wait(self, times):
        self.waits_in = {int((i + 0.5) * len(self.layers) / times) for i in range(times)}

    def forward(self, tokens, place, positions, mask):
        batch, count = tokens.shape
        x = self.embedding[tokens]
        for at, layer in enumerate(self.layers):
            h = F.rms_norm(x, x.shape[-1:], layer["norm"])
            q, k, v = F.linear(h, layer["qkv"]).view(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            keys, values = self.caches[at]
            keys.index_copy_(2, place, k)
            values.index_copy_(2, place, v)
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            x = x + F.linear(y.transpose(1, 2).reshape(batch, count, -1), layer["out"])
            torch.cuda._sleep(self.cycles)
            x = x + F.linear(F.silu(F.linear(F.rms_norm(x, x.shape[-1:], layer["norm"]), layer["gate"])), layer["down"])
            if at in self.waits_in:
                torch.cuda.current_stream().synchronize()
        for _ in range(self.launches):
            self.one.add_(1)
        return F.linear(x[:, -1:], self.head).argmax(-1)

    def mask_of(self, positions):
        return torch.arange(self.longest, device="cuda")[None, None, None, :] <= positions[None, None, :, None]

    def prefill(self, prompt):
        positions = torch.arange(prompt.shape[1], device="cuda")
        return self.forward(prompt, positions, positions, self.mask_of(positions))

    def step(self, tokens, place):
        return self.forward(tokens, place, place, self.mask_of(place))


def busy(loops):
    """Python code that takes as long as its host is slow."""
    count = 0
    for i in range(loops):
        count += i
    return count


def calibrated(decoder, args, step, rewind):
    """us of one launch, wait and loop more: medians of the differences to the steps before and behind, of equal pace."""
    more = {"launch_us": 40, "wait_us": 8, "loop_us": 10_000} if args.mode == "eager" else {}
    took = {name: [] for name in more}
    plain = []
    for _ in range(80):
        rewind()
        before = step(0)
        plain.append(before)
        for name, count in more.items():
            decoder.launches = count if name == "launch_us" else 0
            decoder.wait(count if name == "wait_us" else 0)
            changed = step(count if name == "loop_us" else 0)
            decoder.launches = 0
            decoder.wait(0)
            after = step(0)
            took[name].append(1e3 * (changed - (before + after) / 2) / count)
            before = after
    return {"step_ms": statistics.median(plain), **{name: max(1e-3, statistics.median(all_of)) for name, all_of in took.items()}}


def graphed(decoder, tokens, place):
    """The step as one CUDA graph over these two tensors."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            decoder.step(tokens, place)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = decoder.step(tokens, place)

    def run():
        graph.replay()
        return out

    return run


def main():
    args = options()
    torch.manual_seed(0)
    decoder = Decoder(args)
    prompt = torch.randint(0, 8192, (args.batch, args.prompt), device="cuda")
    tokens = torch.zeros(args.batch, 1, dtype=torch.long, device="cuda")
    place = torch.zeros(1, dtype=torch.long, device="cuda")
    ttft_ms, step_ms = [], []
    with torch.inference_mode():
        run = (lambda: decoder.step(tokens, place)) if args.mode == "eager" else graphed(decoder, tokens, place)
        for _ in range(args.requests):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            tokens.copy_(decoder.prefill(prompt))
            int(tokens[0, 0])
            ttft_ms.append(1e3 * (time.perf_counter() - begin))
            place.fill_(args.prompt)

            def step(loops):
                begin = time.perf_counter()
                busy(loops)
                tokens.copy_(run())
                place.add_(1)
                int(tokens[0, 0])
                return 1e3 * (time.perf_counter() - begin)

            if args.calibrate:
                for _ in range(20):
                    step(0)
                found = calibrated(decoder, args, step, lambda: place.fill_(args.prompt))
                print("RESULT " + json.dumps(found), flush=True)
                return
            for _ in range(args.steps):
                step_ms.append(step(args.host_loops))
    print("RESULT " + json.dumps({"ttft_ms": statistics.median(ttft_ms), "tpot_ms": statistics.median(step_ms),
                                  "tpot_low_ms": statistics.quantiles(step_ms, n=10)[0], "steps": len(step_ms)}), flush=True)


if __name__ == "__main__":
    main()
