"""The program that benchmarks/recorded_steps.py runs under `llmprof run`: steps of one kind, with CUPTI in three states.

    recorded_steps_target.py PROGRAM --library build/release/lib/libcupti.so.alone [--rounds N] [--seconds S]

It asks on stdout for recording to be started and stopped ("CTL start") and waits for "OK" on stdin; prints a "TURN" line
for each turn with the times of its steps and the slowest probe of the CPU's pace beside each, "NOTE" for what should not be, and "END". All steps have the same shapes, and
each ends with a wait for the GPU.
"""
import argparse
import ctypes
import gc
import json
import os
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/gpu"), str(ROOT / "tests/gpu/steady_programs")]
import contract
import pace

MODES = ("nothing", "alone", "recorded")
PARTS = ("nothing", "alone", "copies", "launches", "calls", "recorded")  # each has what the one before it has, and more
PLACE_OF = {"nothing": 1, "alone": 2, "copies": 3, "launches": 4, "calls": 5}
KERNELS = 1 << 10  # CONCURRENT_KERNEL among the recorder's kinds
DISCARDED_STEPS, DISCARDED_S = 3, 0.05
STEPS_LEAST, STEPS_MOST = 8, 400
LONGER = 4  # times as long a turn goes on for steps at the full pace of the CPU
SWITCH_S = 15.0  # what should be there by then never comes
# Recording has stopped, and CUPTI is still there: so long it is waited for to leave. Once it stayed, not that long again.
LEAVES_WITHIN_S, STAYS_AFTER_S = 1.5, 0.5


# ---- programs ------------------------------------------------------------------------------------------------------

class TorchProgram:
    """step() runs one step to its end, inside a range in every state, so that a report knows the steps. By that word, whatever
    the program does, their windows begin where the range does; those of decode begin where the step before ended."""

    def __init__(self, step):
        import torch
        self.one, self.wait, self.nvtx = step, torch.cuda.synchronize, torch.cuda.nvtx

    def step(self):
        self.nvtx.range_push("prefill step")
        self.one()
        self.nvtx.range_pop()


def model_and_prompt(name, tokens):
    """A model of tests/clients/workloads with random weights, and tokens for it."""
    sys.path.insert(0, str(ROOT / "tests/clients/workloads"))
    import torch
    from models import build, vocabulary
    with torch.inference_mode(False):
        model = build(name)
    return model, torch.randint(0, vocabulary(name), (1, tokens), device="cuda")


def decoder(batch, layers=8, hidden=4096, heads=32, inner=11008, context=256):
    """A decoder step over a cache that does not grow, [batch, hidden] to [batch, hidden], and an input for it.
    `after_layer`, if it is given, is called with the hidden state and returns it."""
    import torch
    import torch.nn.functional as F
    head = hidden // heads

    def weights(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02

    blocks = [dict(qkv=weights(3 * hidden, hidden), out=weights(hidden, hidden), up=weights(2 * inner, hidden),
                   down=weights(hidden, inner), keys=weights(batch, heads, context, head),
                   values=weights(batch, heads, context, head)) for _ in range(layers)]
    norm = torch.ones(hidden, device="cuda", dtype=torch.bfloat16)

    def run(x, after_layer=None):
        for block in blocks:
            q, k, v = F.linear(F.rms_norm(x, (hidden,), norm), block["qkv"]).view(batch, 3, heads, 1, head).unbind(1)
            block["keys"][:, :, -1:].copy_(k)
            block["values"][:, :, -1:].copy_(v)
            # By hand: no library makes a plan for it.
            scores = torch.matmul(q, block["keys"].transpose(2, 3)) * head ** -0.5
            seen = torch.matmul(scores.softmax(-1), block["values"]).reshape(batch, hidden)
            x = x + F.linear(seen, block["out"])
            gate, up = F.linear(F.rms_norm(x, (hidden,), norm), block["up"]).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, block["down"])
            if after_layer is not None:
                x = after_layer(x)
        return x

    return run, weights(batch, hidden)


def eager_decode():
    from transformers import DynamicCache
    model, prompt = model_and_prompt("tinyllama-1.1b", 128)
    cache = DynamicCache()
    model(prompt, past_key_values=cache, use_cache=True)
    token = prompt[:, -1:].clone()

    def step():
        cache.crop(128)  # every step attends to 129 tokens
        logits = model(token, past_key_values=cache, use_cache=True).logits
        logits[:, -1].argmax(-1).item()

    step()
    step()
    if cache.get_seq_length() != 129:
        raise SystemExit(f"the cache holds {cache.get_seq_length()} tokens after a step, expected 129")
    return TorchProgram(step)


def items():
    run, x = decoder(batch=8)

    def look(hidden):
        return hidden * 0.5 if hidden.abs().amax().item() > 1e3 else hidden

    return TorchProgram(lambda: run(x, look))


def graph_waited():
    import torch
    run, x = decoder(batch=1)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(x)

    def step():
        graph.replay()
        torch.cuda.current_stream().synchronize()

    return TorchProgram(step)


def small_graphs():
    """25 graphs of 12 small kernels, an eager kernel behind each, waited for once."""
    import torch
    x = torch.rand(1 << 16, device="cuda")
    y = torch.rand(1 << 16, device="cuda")
    graphs = []
    for _ in range(25):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(6):
                x.mul_(0.5)
                x.add_(y)
        graphs.append(graph)

    def step():
        for graph in graphs:
            graph.replay()
            y.mul_(1.0)
        torch.cuda.current_stream().synchronize()

    return TorchProgram(step)


def small_kernels():
    import torch
    x = torch.rand(1 << 16, device="cuda")
    y = torch.rand(1 << 16, device="cuda")

    def step():
        for _ in range(500):
            x.mul_(0.5)
            x.add_(y)
        torch.cuda.synchronize()

    return TorchProgram(step)


def eager_prefill():
    model, prompt = model_and_prompt("llama-3.1-8b", 512)
    return TorchProgram(lambda: model(prompt, use_cache=False, logits_to_keep=1).logits[:, -1].argmax(-1).item())


PROGRAMS = {"eager_decode": eager_decode, "items": items, "graph_waited": graph_waited, "small_kernels": small_kernels,
            "eager_prefill": eager_prefill, "small_graphs": small_graphs}


# ---- CUPTI's states ------------------------------------------------------------------------------------------------

class AloneState(ctypes.Structure):
    """benchmarks/cupti_alone/cupti_alone.h"""
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "place", "recorder_attached", "recorder_kinds", "recorder_callbacks", "own_subscription", "subscriptions",
        "finalizations", "switches", "records", "refused_buffers", "unexpected", "last_result")]

    def text(self):
        return ", ".join(f"{name} {getattr(self, name)}" for name, _ in self._fields_)


def load_alone(path):
    """Between the recorder and libcupti, which must be loaded before it, and before CUDA starts."""
    maps = pathlib.Path("/proc/self/maps").read_text()
    if "/libcupti.so" not in maps:
        given = os.environ.get("LLMPROF_CUPTI", "")
        if not given:
            raise SystemExit("no libcupti is loaded with PyTorch, and LLMPROF_CUPTI names none")
        ctypes.CDLL(given)
    library = ctypes.CDLL(str(path))
    library.llmprof_alone_open.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.llmprof_alone_state.argtypes = [ctypes.POINTER(AloneState)]
    library.llmprof_alone_state.restype = None
    library.llmprof_alone_switch.argtypes = [ctypes.c_int]
    why = ctypes.create_string_buffer(512)
    if library.llmprof_alone_open(why, len(why)) != 0:
        raise SystemExit(f"{path}: {why.value.decode()}")
    return library


def check_recorder(library):
    """Once recording was to begin: the recorder has subscribed through the library."""
    state = AloneState()
    library.llmprof_alone_state(ctypes.byref(state))
    if state.subscriptions:
        return
    maps = pathlib.Path("/proc/self/maps").read_text().split()
    loaded = sorted({word for word in maps if "/libcupti.so" in word or "/libllmprof" in word})
    raise SystemExit(f"the recorder did not come to CUPTI through {library._name}: {state.text()}. Is this program run by `llmprof run`, "
                     f"in its default mode? Loaded are {', '.join(loaded)}")


class Place:
    """The processor on which this thread is, to stay there: moving would change the pace of steps. Threads that are begun
    meanwhile, CUPTI's above all, would stay there too, and in the way: free() lets them go anywhere."""

    def __init__(self):
        self.all = os.sched_getaffinity(0)
        self.own = {int(pathlib.Path("/proc/thread-self/stat").read_text().rsplit(")", 1)[1].split()[36])}
        self.keep()

    def keep(self):
        os.sched_setaffinity(0, self.own)

    def free(self):
        os.sched_setaffinity(0, self.all)


def say(word, value=""):
    print(f"{word} {value if isinstance(value, str) else json.dumps(value)}".strip(), flush=True)


def control(what):
    say("CTL", what)
    answer = sys.stdin.readline().strip()
    if answer != "OK":
        raise SystemExit(f"llmprof ctl {what}: {answer or 'no answer'}")


class Target:
    def __init__(self, library, program):
        self.library, self.program = library, program
        self.mode = None
        self.stays = False  # CUPTI was seen to stay when recording had stopped
        self.alone_steps = 0
        self.best_ns = 1 << 62
        self.place = Place()

    def state(self):
        out = AloneState()
        self.library.llmprof_alone_state(ctypes.byref(out))
        return out

    def run_until(self, holds, seconds):
        """Steps until holds(state); False if it does not within `seconds`."""
        end = time.monotonic() + seconds
        while not holds(self.state()):
            if time.monotonic() > end:
                return False
            self.program.step()
        return True

    def switch(self, place):
        self.program.wait()
        self.place.free()
        result = self.library.llmprof_alone_switch(place)
        self.place.keep()
        if result != 0:
            raise SystemExit(f"switching CUPTI to place {place} gave {result}: {self.state().text()}")

    def to(self, mode):
        if mode == self.mode:
            return
        if self.mode == "recorded":
            self.stop_recording()
        elif self.mode is not None:
            self.back_to_recorder()
        if mode == "recorded":
            self.start_recording()
        else:
            self.switch(PLACE_OF[mode])
        self.mode = mode

    def back_to_recorder(self):
        self.switch(0)
        for _ in range(3):
            if not self.state().own_subscription:
                break
            self.program.wait()
        if self.state().own_subscription:
            say("NOTE", "no wait took CUPTI out; it is taken out between calls")
            self.library.llmprof_alone_finalize()
        state = self.state()
        if state.own_subscription or state.last_result:
            raise SystemExit(f"CUPTI could not be taken out: {state.text()}")

    def start_recording(self):
        control("start")
        if not self.run_until(lambda state: state.recorder_kinds & KERNELS, SWITCH_S):
            check_recorder(self.library)
            raise SystemExit(f"kernels are not recorded {SWITCH_S:.0f} s after ctl start: {self.state().text()}")

    def stop_recording(self):
        control("stop")
        if not self.run_until(lambda state: state.recorder_kinds == 0, SWITCH_S):
            raise SystemExit(f"records are still on {SWITCH_S:.0f} s after ctl stop: {self.state().text()}")
        left = self.run_until(lambda state: not state.recorder_attached, STAYS_AFTER_S if self.stays else LEAVES_WITHIN_S)
        self.stays = not left

    def probe(self):
        took = contract.pace_ns()
        self.best_ns = min(self.best_ns, took)
        return took

    def turn(self, number, mode, seconds):
        self.to(mode)
        gc.collect()  # and not while steps are timed
        begin = time.monotonic()
        discarded = 0
        while discarded < DISCARDED_STEPS or time.monotonic() < begin + DISCARDED_S:
            self.program.step()
            discarded += 1
        first = self.state()
        times, began_unix_ns, paces, passed_over, at_full_pace = [], [], [], 0, 0
        begin = time.monotonic()
        pace_before = self.probe()
        while len(times) < STEPS_MOST:
            now = time.monotonic()
            enough = at_full_pace >= STEPS_LEAST or now > begin + LONGER * seconds
            if now > begin + seconds and len(times) >= STEPS_LEAST and enough:
                break
            if now > begin + SWITCH_S + seconds:
                say("NOTE", f"round {number}, {mode}: {len(times)} whole steps in {now - begin:.0f} s, the turn does not "
                            f"count: {self.state().text()}")
                return
            before = self.state()
            began = time.time_ns()
            started = time.perf_counter_ns()
            self.program.step()
            ended = time.perf_counter_ns()
            pace_behind = self.probe()
            slowest, pace_before = max(pace_before, pace_behind), pace_behind
            after = self.state()
            # A window of the recorder's own ended: no step of a recorded turn.
            if mode == "recorded" and not (before.recorder_kinds & KERNELS and after.switches == before.switches):
                passed_over += 1
                continue
            times.append(round((ended - started) * 1e-6, 5))
            began_unix_ns.append(began)
            paces.append(slowest)
            at_full_pace += pace.full(slowest, self.best_ns)
        last = self.state()
        self.alone_steps += len(times) + discarded if mode in PLACE_OF and mode != "nothing" else 0
        changed = [name for name in ("place", "recorder_attached", "own_subscription", "unexpected", "refused_buffers")
                   if getattr(first, name) != getattr(last, name)]
        if mode != "recorded" and last.switches != first.switches:
            changed.append("switches")
        if changed:
            say("NOTE", f"round {number}, {mode}: {', '.join(changed)} changed meanwhile, the turn does not count: "
                        f"{first.text()} -> {last.text()}")
            return
        say("TURN", {"round": number, "mode": mode, "cupti": self.cupti(mode, last), "ms": times,
                     "pace_ns": paces, "passed_over": passed_over, **({"began_unix_ns": began_unix_ns} if mode == "recorded" else {})})

    def cupti(self, mode, state):
        if mode == "recorded":
            return "recorded"
        if mode != "nothing":
            return "own subscription" if state.own_subscription else "recorder's subscription"
        return "silent" if state.recorder_attached else "out"


def run(options, library, program):
    target = Target(library, program)
    gc.collect()
    gc.freeze()
    gc.disable()
    begin = time.monotonic()
    # The first round warms up: CUPTI prepares modules when it comes, and leaves for the first time.
    for number in range(options.rounds + 1):
        modes = PARTS if options.parts else MODES
        for mode in modes if number % 2 else modes[::-1]:
            target.turn(number, mode, options.seconds)
        if time.monotonic() - begin > options.seconds_most:
            say("NOTE", f"out of time after {number} of {options.rounds} rounds")
            break
    if target.mode != "recorded":
        target.back_to_recorder()
    state = target.state()
    if state.records == 0:
        raise SystemExit(f"CUPTI alone delivered no record: {state.text()}")
    say("END", {"records_per_step_alone": state.records / target.alone_steps, "refused_buffers": state.refused_buffers,
                "attached": state.subscriptions, "taken_out": state.finalizations, "unexpected": state.unexpected})


def options_of(words, programs):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=programs)
    parser.add_argument("--library", required=True, metavar="FILE", help="libcupti.so.alone")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.3, help="of one turn")
    parser.add_argument("--parts", action="store_true", help="in more turns, by what is switched on")
    parser.add_argument("--seconds-most", type=float, default=60, metavar="SECONDS", help="no new round after this")
    return parser.parse_args(words)


def main():
    options = options_of(None, PROGRAMS)
    import torch
    library = load_alone(options.library)
    torch.manual_seed(0)
    torch.zeros(1, device="cuda")
    with torch.inference_mode():
        begin = time.monotonic()
        program = PROGRAMS[options.program]()
        for _ in range(5):
            program.step()
        say("READY", {"setup_s": round(time.monotonic() - begin, 1), "torch": torch.__version__})
        run(options, library, program)


if __name__ == "__main__":
    main()
