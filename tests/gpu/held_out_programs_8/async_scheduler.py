"""A server of four threads: clients, a scheduler, a thread that launches, and one that waits for tokens.

A step is one pass over the next tokens of all running texts and a piece of one prompt. The scheduler plans the next
step while one is at work, the launching thread queues it behind that one, and its input tokens never leave the GPU;
the host reads them a step late, from pinned memory, when their event has come. A step ends when its tokens are read
and starts when its launching starts or, if that is later, when the step before ends. A request is one prompt, from its
arrival in the queue. With --ranges the scheduler has "plan", the launching thread "launch", with the number of tokens,
with "model" and "draw" inside, and the waiting one "tokens".
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import collections
import math
import queue
import random
import threading

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges

VOCABULARY, LENGTH, SLOTS, BUDGET, AHEAD = 32000, 640, 12, 192, 2
WIDTH, INNER, LAYERS, HEADS, KV_HEADS, SIZE = 2048, 7168, 16, 16, 4, 128
GROUP = HEADS // KV_HEADS
MADE = dict(device="cuda", dtype=torch.bfloat16)


def norm(x, weight):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def attention(q, keys, values, hidden):
    """Queries rows x count x KV heads x group x size, keys and values rows x longest x KV heads x size."""
    rows, count, longest = q.shape[0], q.shape[1], keys.shape[1]
    q = q.permute(0, 2, 3, 1, 4).reshape(rows, KV_HEADS, GROUP * count, SIZE)
    scores = (q @ keys.permute(0, 2, 3, 1)).float().view(rows, KV_HEADS, GROUP, count, longest) * SIZE ** -0.5
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1).to(q.dtype)
    heads = weights.view(rows, KV_HEADS, GROUP * count, longest) @ values.transpose(1, 2)
    heads = heads.view(rows, KV_HEADS, GROUP, count, SIZE).permute(0, 3, 1, 2, 4)
    return heads.reshape(rows * count, HEADS * SIZE)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.Parameter(torch.ones(WIDTH, **MADE)), nn.Parameter(torch.ones(WIDTH, **MADE))
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * SIZE, bias=False, **MADE)
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False, **MADE)
        self.gate_up = nn.Linear(WIDTH, 2 * INNER, bias=False, **MADE)
        self.down = nn.Linear(INNER, WIDTH, bias=False, **MADE)
        self.keys = torch.zeros(SLOTS, LENGTH, KV_HEADS, SIZE, **MADE)
        self.values = torch.zeros_like(self.keys)

    def forward(self, x, step):
        heads = self.qkv(norm(x, self.before)).view(-1, HEADS + 2 * KV_HEADS, SIZE)
        q, k, v = heads.split((HEADS, KV_HEADS, KV_HEADS), 1)
        q = turned(q, step.cos, step.sin).reshape(-1, KV_HEADS, GROUP, SIZE)
        self.keys[step.slots, step.places] = turned(k, step.cos, step.sin)
        self.values[step.slots, step.places] = v
        parts = []
        if step.running:
            slots = step.slots[:step.running]
            parts.append(attention(q[:step.running, None], self.keys[:, :step.longest].index_select(0, slots),
                                   self.values[:, :step.longest].index_select(0, slots), step.hidden_running))
        if step.piece:
            parts.append(attention(q[None, step.running:], self.keys[step.slot:step.slot + 1, :step.reach],
                                   self.values[step.slot:step.slot + 1, :step.reach], step.hidden_piece))
        x = x + self.out(torch.cat(parts) if len(parts) > 1 else parts[0])
        gate, up = self.gate_up(norm(x, self.between)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.last, self.head = nn.Parameter(torch.ones(WIDTH, **MADE)), nn.Linear(WIDTH, VOCABULARY, bias=False, **MADE)
        speeds = 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE)
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(), speeds)
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)

    def forward(self, ids, step):
        step.cos, step.sin = self.cos[step.places][:, None], self.sin[step.places][:, None]
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, step)
        # Every running text's row, and the last one of the piece.
        rows = torch.cat((x[:step.running], x[-1:])) if step.piece else x
        return self.head(norm(rows, self.last))


class Request:
    def __init__(self, prompt, limit):
        self.prompt, self.limit = prompt, limit
        self.slot, self.taken, self.planned = None, 0, 0
        self.text, self.start, self.first, self.end = [], now(), 0, 0


class Step:
    """A plan: `rows` are the running texts, `request` the one whose prompt has the next `piece` tokens in this step."""

    def __init__(self, number, rows, request, piece):
        self.number, self.rows, self.request, self.piece = number, rows, request, piece
        self.running, self.yielding = len(rows), list(rows)
        self.slot = self.reach = 0
        slots, places = [row.slot for row in rows], [len(row.prompt) + row.planned - 1 for row in rows]
        self.longest = max(places, default=0) + 1
        self.ids = []
        if piece:
            self.slot, self.reach = request.slot, request.taken + piece
            self.ids = request.prompt[request.taken:self.reach]
            slots += [request.slot] * piece
            places += range(request.taken, self.reach)
            if self.reach == len(request.prompt):
                self.yielding.append(request)
        self.kind = "mixed" if rows and piece else "prefill" if piece else "decode"
        self.sent = [[0] * self.running + self.ids, slots, places]


class Server:
    def __init__(self, model, record, mark):
        self.model, self.record, self.mark = model, record, mark
        self.arrivals = queue.Queue()
        # Two steps may be under way; the third one's buffers are then free again.
        self.free = threading.Semaphore(AHEAD)
        self.plans, self.launched = queue.Queue(), queue.Queue()
        self.up = [torch.zeros(3, BUDGET + SLOTS, dtype=torch.int64).pin_memory() for _ in range(AHEAD + 1)]
        self.back = [torch.zeros(SLOTS + 1, dtype=torch.int64).pin_memory() for _ in range(AHEAD + 1)]
        self.events = [torch.cuda.Event(blocking=True) for _ in range(AHEAD + 1)]
        self.tokens = torch.zeros(SLOTS, dtype=torch.int64, device="cuda")
        self.waiting, self.running, self.reading = collections.deque(), [], None
        self.slots, self.requests, self.end = list(range(SLOTS)), [], 0

    def plan(self, number):
        """The next step, or None when there is nothing to do. Counts the tokens that it will yield as had."""
        with self.mark("plan"):
            while not self.arrivals.empty():
                self.waiting.append(self.arrivals.get())
            if self.reading is None and self.waiting and self.slots:
                self.reading = self.waiting.popleft()
                self.reading.slot = self.slots.pop(0)
                self.requests.append(self.reading)
            request = self.reading
            piece = min(BUDGET - len(self.running), len(request.prompt) - request.taken) if request else 0
            if not self.running and not piece:
                return None
            step = Step(number, self.running, request, piece)
            if piece:
                request.taken += piece
                if request.taken == len(request.prompt):
                    self.reading = None
            self.running = []
            for row in step.yielding:
                row.planned += 1
                if row.planned < row.limit:
                    self.running.append(row)
                else:
                    self.slots.append(row.slot)  # what is queued later runs later, so the slot may be had at once
            return step

    def schedule(self, steps):
        for number in range(steps):
            self.free.acquire()
            while (step := self.plan(number)) is None:
                self.waiting.append(self.arrivals.get(timeout=60))
            self.plans.put(step)
        self.plans.put(None)

    def launch(self):
        torch.set_grad_enabled(False)
        while (step := self.plans.get()) is not None:
            step.begun = now()
            with self.mark(f"launch {step.running + step.piece}"):
                ring, count = step.number % (AHEAD + 1), step.running + step.piece
                self.up[ring][:, :count] = torch.tensor(step.sent)
                sent = self.up[ring].to("cuda", non_blocking=True)[:, :count]
                step.slots, step.places = sent[1], sent[2]
                if step.running:
                    step.hidden_running = (torch.arange(step.longest, device="cuda")
                                           > step.places[:step.running, None])[:, None, None, None]
                if step.piece:
                    step.hidden_piece = (torch.arange(step.reach, device="cuda") > step.places[step.running:, None])
                ids = torch.cat((self.tokens[step.slots[:step.running]], sent[0, step.running:]))
                with self.mark("model"):
                    self.logits = self.model(ids, step)
                with self.mark("draw"):
                    values, numbers = self.logits.float().topk(40, -1)
                    chosen = (values.softmax(-1) / torch.empty_like(values).exponential_()).argmax(-1, keepdim=True)
                    drawn = numbers.gather(-1, chosen)[:, 0]
                    # A piece that is not its prompt's last draws too; nothing reads what that leaves in the slot.
                    rows = step.slots[:step.running + 1] if step.piece else step.slots
                    self.tokens.index_copy_(0, rows, drawn)
                    self.back[ring][:len(drawn)].copy_(drawn, non_blocking=True)
                    self.events[ring].record()
            self.launched.put(step)
        self.launched.put(None)

    def fetch(self, warm_up):
        while (step := self.launched.get()) is not None:
            ring = step.number % (AHEAD + 1)
            with self.mark("tokens"):
                self.events[ring].synchronize()
                tokens = self.back[ring].tolist()
            start, self.end = max(step.begun, self.end), now()
            sequences = step.running + bool(step.piece)
            self.record.step(step.kind, start, self.end, step.running + step.piece, sequences, warm_up)
            for request, token in zip(step.yielding, tokens):
                request.text.append(token)
                request.first, request.end = request.first or self.end, self.end
            self.free.release()

    def serve(self, steps, warm_up=False):
        threads = [threading.Thread(target=self.schedule, args=(steps,)), threading.Thread(target=self.launch),
                   threading.Thread(target=self.fetch, args=(warm_up,))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for request in self.requests:
            if request.first:
                self.record.request(request.start, request.first, request.end, len(request.prompt), len(request.text),
                                    warm_up)
            assert all(0 <= token < VOCABULARY for token in request.text) and len(request.text) <= request.limit
        assert bool(torch.isfinite(self.logits).all())


def clients(server, stop, chance):
    """Now a trickle of prompts, now a crowd."""
    while not stop.is_set():
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            prompt = [chance.randrange(VOCABULARY) for _ in range(chance.randrange(40, 520))]
            server.arrivals.put(Request(prompt, chance.randrange(8, 48)))
        stop.wait(chance.expovariate(1 / 0.12))


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    model = Model().eval()
    torch.cuda.synchronize()
    chance = random.Random(options.seed)

    # Two prompts and their answers, the second in two pieces: seven steps, and all three kinds of them.
    server = Server(model, record, mark)
    for length in (150, 250):
        server.arrivals.put(Request([chance.randrange(VOCABULARY) for _ in range(length)], 5))
    server.serve(7, warm_up=True)

    server, stop = Server(model, record, mark), threading.Event()
    crowd = threading.Thread(target=clients, args=(server, stop, chance))
    crowd.start()
    server.serve(options.steps)
    stop.set()
    crowd.join()
    record.finish()


main()
