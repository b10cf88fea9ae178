"""A batch server with two classes of requests: chunks of prompts mixed with decode, and tokens fetched one step behind.

A step is one pass over up to two chunks of prompts and all running sequences. The host queues it while the GPU still works on the step
before, whose tokens it only then waits for (copied to pinned memory, with an event behind). So a step is timed from when the host had
the tokens of the step before until it has this one's (the first from when the host began to plan it): that is the time in which the
GPU works on it, not the one in which it is queued. Planning is within steps. A request is one prompt with its answer: an urgent one
starts when it arrives, which the server sees when it plans a step, a patient one when the server takes it up. With --ranges each step
has two ranges, for planning and queueing it and for waiting for it; between these two lies the queueing of the step after.
"""
import collections, os, random, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges

VOCABULARY, LENGTH, SLOTS = 32000, 1024, 48
LAYERS, HEADS, KV_HEADS, SIZE, INNER = 10, 32, 4, 128, 12288
WIDTH, GROUP = HEADS * SIZE, HEADS // KV_HEADS
CHUNK, CHUNKS = 320, 2  # tokens in one, chunks in a step
URGENT_CHUNKS, PATIENT_CHUNKS = 1, 3  # in a prompt
URGENT_ANSWER, PATIENT_ANSWER = (16, 28), (44, 60)
URGENT_CHANCE = 0.3  # that one arrives before a step
SPARE = LENGTH - 1  # where rows without a sequence write
WARM_UP_STEPS = 8


def weight(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).mul_(columns ** -0.5)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Model:
    """In the manner of Mistral: grouped heads, SwiGLU, one matrix for both ends; bf16. A step has the rows of its chunks, then one for
    each slot of the cache, with or without a sequence."""

    def __init__(self):
        self.embedding = weight(VOCABULARY, WIDTH)
        self.norms = torch.ones(2 * LAYERS + 1, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.layers = [(weight((HEADS + 2 * KV_HEADS) * SIZE, WIDTH), weight(WIDTH, WIDTH), weight(2 * INNER, WIDTH), weight(WIDTH, INNER))
                       for _ in range(LAYERS)]
        self.keys = [torch.zeros(SLOTS, KV_HEADS, LENGTH, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self.order = torch.arange(LENGTH, device="cuda")
        frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        angles = torch.outer(self.order.float(), frequencies)
        self.cos, self.sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
        # The last token of each slot, and one place for what nobody wants.
        self.tokens = torch.zeros(SLOTS + 1, device="cuda", dtype=torch.int64)
        # What the host sends in a step: ids, slots, starts and targets of chunks, positions of slots.
        self.sizes = [CHUNKS * CHUNK, CHUNKS, CHUNKS, CHUNKS, SLOTS]
        self.inputs = torch.zeros(sum(self.sizes), device="cuda", dtype=torch.int64)

    def norm(self, x, i):
        return F.rms_norm(x, (WIDTH,), self.norms[i])

    def attend(self, q, keys, values, hidden):
        """`q` is sequences x KV heads x heads that share them x queries x size, `hidden` is sequences x 1 x 1 x queries x keys."""
        many, _, _, count, _ = q.shape
        scores = torch.matmul(q.reshape(many, KV_HEADS, GROUP * count, SIZE), keys.transpose(-1, -2))
        scores = scores.view(many, KV_HEADS, GROUP, count, LENGTH).masked_fill(hidden, float("-inf"))
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(torch.bfloat16)
        y = torch.matmul(weights.view(many, KV_HEADS, GROUP * count, LENGTH), values).view(many, KV_HEADS, GROUP, count, SIZE)
        return y.permute(0, 3, 1, 2, 4).reshape(many * count, WIDTH)

    def step(self, chunks):
        """One pass over `self.inputs`, of whose chunks the first `chunks` count."""
        ids, slots, starts, targets, positions = self.inputs.split(self.sizes)
        rows = chunks * CHUNK
        slots, starts, targets = slots[:chunks], starts[:chunks], targets[:chunks]
        places = starts[:, None] + self.order[:CHUNK]
        hidden_in_chunks = (self.order > places[:, :, None])[:, None, None]
        hidden_in_slots = (self.order > positions[:, None])[:, None, None, None]
        row_slots = torch.cat([slots[:, None].expand(chunks, CHUNK).reshape(rows), self.order[:SLOTS]])
        row_places = torch.cat([places.reshape(-1), positions])
        cos, sin = self.cos[row_places][:, None], self.sin[row_places][:, None]
        x = F.embedding(torch.cat([ids[:rows], self.tokens[:SLOTS]]), self.embedding)
        for i, (into, out, up, down) in enumerate(self.layers):
            keys, values = self.keys[i], self.values[i]
            qkv = F.linear(self.norm(x, 2 * i), into).view(-1, HEADS + 2 * KV_HEADS, SIZE)
            qk, v = qkv.split([HEADS + KV_HEADS, KV_HEADS], dim=1)
            q, k = rotate(qk, cos, sin).split([HEADS, KV_HEADS], dim=1)
            keys[row_slots, :, row_places] = k
            values[row_slots, :, row_places] = v
            q = (q * SIZE ** -0.5).view(-1, KV_HEADS, GROUP, SIZE)
            y = self.attend(q[rows:, :, :, None], keys, values, hidden_in_slots)
            if chunks:
                q = q[:rows].view(chunks, CHUNK, KV_HEADS, GROUP, SIZE).permute(0, 2, 3, 1, 4)
                y = torch.cat([self.attend(q, keys[slots], values[slots], hidden_in_chunks), y])
            x = x + F.linear(y, out)
            gate, value = F.linear(self.norm(x, 2 * i + 1), up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * value, down)
        # A token for each chunk, which only the last of a prompt needs, and for each slot.
        x = torch.cat([x[CHUNK - 1:rows:CHUNK], x[rows:]])
        logits = F.linear(self.norm(x, 2 * LAYERS), self.embedding).float()
        noise = torch.empty_like(logits).exponential_()
        drawn = (torch.softmax(logits, dim=-1) / noise).argmax(dim=-1)
        self.tokens[:SLOTS] = drawn[chunks:]
        self.tokens[targets] = drawn[:chunks]


class Request:
    def __init__(self, urgent, rng):
        self.urgent = urgent
        self.prompt = rng.choices(range(VOCABULARY), k=CHUNK * (URGENT_CHUNKS if urgent else PATIENT_CHUNKS))
        self.wanted = rng.randint(*(URGENT_ANSWER if urgent else PATIENT_ANSWER))
        self.taken = 0  # tokens of the prompt, and of the answer, that are queued
        self.queued = 0
        self.slot = None
        self.start = now()
        self.first = self.end = None
        self.answer = []


class Server:
    def __init__(self, model, rng, mark):
        self.model, self.rng, self.mark = model, rng, mark
        # By turns, since one step may be on the GPU while the next is planned.
        self.sent = [torch.zeros(sum(model.sizes), dtype=torch.int64).pin_memory() for _ in range(2)]
        self.fetched = [torch.zeros(SLOTS + 1, dtype=torch.int64).pin_memory() for _ in range(2)]
        self.events = [torch.cuda.Event() for _ in range(2)]

    def reset(self):
        self.free = collections.deque(range(SLOTS))
        self.urgent = collections.deque([Request(True, self.rng)])
        self.patient = None  # the one whose prompt is being taken in
        self.running = []
        self.all = []

    def next_chunk(self):
        """The request whose prompt the next chunk is of: urgent ones first, then the patient one in hand, then a new one."""
        if self.urgent and self.free:
            request = self.urgent.popleft()
        elif self.patient:
            return self.patient
        elif self.free:
            request = self.patient = Request(False, self.rng)
        else:
            return None
        request.slot = self.free.popleft()
        self.all.append(request)
        return request

    def plan(self):
        """What goes into a step, as the numbers to send, how many chunks, who gets a token by it, and its kind and size."""
        if self.rng.random() < URGENT_CHANCE:
            self.urgent.append(Request(True, self.rng))
        ids, slots, starts, targets, positions = [], [], [], [], [SPARE] * SLOTS
        receivers = list(self.running)
        for request in self.running:
            # The token before is not in the cache yet.
            positions[request.slot] = len(request.prompt) + request.queued - 1
        served = set(self.running)
        decoding = len(self.running)
        while len(slots) < CHUNKS:
            request = self.next_chunk()
            if request is None:
                break
            served.add(request)
            ids += request.prompt[request.taken:request.taken + CHUNK]
            slots.append(request.slot)
            starts.append(request.taken)
            request.taken += CHUNK
            done = request.taken == len(request.prompt)
            targets.append(request.slot if done else SLOTS)
            if done:
                receivers.append(request)
                if request is self.patient:
                    self.patient = None
        chunks = len(slots)
        for request in receivers:
            request.queued += 1
        self.running = [request for request in receivers if request.queued < request.wanted]
        # Who leaves gives its slot to a later step, whose kernels come after this one's.
        self.free.extend(request.slot for request in receivers if request.queued == request.wanted)
        absent = CHUNKS - chunks
        numbers = ids + [0] * (absent * CHUNK)
        for part in (slots, starts, targets):
            numbers += part + [0] * absent
        kind = "mixed" if chunks and decoding else "prefill" if chunks else "decode"
        return numbers + positions, chunks, receivers, (kind, chunks * CHUNK + decoding, len(served))

    def queue(self, turn):
        numbers, chunks, receivers, what = self.plan()
        self.sent[turn].copy_(torch.tensor(numbers))
        self.model.inputs.copy_(self.sent[turn], non_blocking=True)
        self.model.step(chunks)
        self.fetched[turn].copy_(self.model.tokens, non_blocking=True)
        self.events[turn].record()
        return receivers, what

    def wait(self, turn, receivers):
        self.events[turn].synchronize()
        tokens = self.fetched[turn].tolist()
        end = now()
        for request in receivers:
            request.answer.append(tokens[request.slot])
            request.first = request.first or end
            request.end = end
        return end

    def run(self, steps, record, warm_up=False):
        self.reset()
        start = now()
        before = None
        for i in range(steps + 1):
            queued = None
            if i < steps:
                with self.mark("queue a step"):
                    queued = self.queue(i % 2)
            if before:
                receivers, what = before
                with self.mark("wait for a step"):
                    end = self.wait((i - 1) % 2, receivers)
                record.step(what[0], start, end, what[1], what[2], warm_up)
                start = end
            before = queued
        for request in self.all:
            if request.answer:
                record.request(request.start, request.first, request.end, len(request.prompt), len(request.answer), warm_up)
                assert len(request.answer) == request.queued and all(0 <= token < VOCABULARY for token in request.answer)
        assert torch.isfinite(self.model.keys[-1]).all().item()


@torch.no_grad()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    server = Server(Model(), random.Random(args.seed), mark)
    torch.cuda.synchronize()
    with mark("warm-up"):
        server.run(WARM_UP_STEPS, record, warm_up=True)
    server.run(args.steps, record)
    record.finish()


if __name__ == "__main__":
    main()
