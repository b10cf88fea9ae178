"""Closed-loop clients before an engine whose decode step is a chain of graphs, one from each attention to the next, which is eager."""
import functools, os, random, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges

VOCABULARY, LENGTH = 32000, 448
LAYERS, HEADS, INNER = 24, 16, 6144
NOPE, ROPE, LATENT, VALUE = 128, 64, 512, 128  # sizes of a head without and with rotation, of the latent, and of a head's value
WIDTH = 2048
SLOTS, CLIENTS = 4, 6
TURN = 4  # decode steps before the queue is looked at again
WARM_UP_PROMPT, WARM_UP_STEPS = 48, 3


def weight(*shape, scale):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).mul_(scale)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def captured(function, side, pool):
    """A graph of `function`, which leaves its results in buffers of its own and runs first on the stream `side`."""
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        function()
    return graph


class Layer:
    """Latent attention in the manner of DeepSeek: the cache has one latent and one rotated key for all heads; SwiGLU."""

    def __init__(self):
        self.norm_1 = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.norm_2 = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.norm_latent = torch.ones(LATENT, device="cuda", dtype=torch.bfloat16)
        self.q = weight(HEADS * (NOPE + ROPE), WIDTH, scale=WIDTH ** -0.5)
        self.down_kv = weight(LATENT + ROPE, WIDTH, scale=WIDTH ** -0.5)
        self.up_k = weight(HEADS, NOPE, LATENT, scale=LATENT ** -0.5)
        self.up_v = weight(HEADS, LATENT, VALUE, scale=LATENT ** -0.5)
        self.out = weight(WIDTH, HEADS * VALUE, scale=WIDTH ** -0.5)
        self.gate_up = weight(2 * INNER, WIDTH, scale=WIDTH ** -0.5)
        self.down = weight(WIDTH, INNER, scale=INNER ** -0.5)
        self.latents = torch.zeros(SLOTS, LENGTH, LATENT, device="cuda", dtype=torch.bfloat16)
        self.rotated = torch.zeros(SLOTS, LENGTH, ROPE, device="cuda", dtype=torch.bfloat16)

    def before(self, x, cos, sin):
        """Queries (heads x rows), the latents and the rotated keys of each row of `x`."""
        count = x.shape[0]
        h = F.rms_norm(x, (WIDTH,), self.norm_1)
        q = F.linear(h, self.q).view(count, HEADS, NOPE + ROPE).transpose(0, 1)
        plain, turned = q.split([NOPE, ROPE], dim=-1)
        latent, key = F.linear(h, self.down_kv).split([LATENT, ROPE], dim=-1)
        latent = F.rms_norm(latent, (LATENT,), self.norm_latent)
        return torch.bmm(plain, self.up_k), rotate(turned, cos, sin), latent, rotate(key, cos, sin)

    def after(self, x, mixed):
        """`mixed` is what each head has gathered from the latents, heads x rows x LATENT."""
        y = torch.bmm(mixed, self.up_v).transpose(0, 1).reshape(x.shape[0], HEADS * VALUE)
        x = x + F.linear(y, self.out)
        gate, up = F.linear(F.rms_norm(x, (WIDTH,), self.norm_2), self.gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.down)


class Model:
    def __init__(self):
        self.embedding = weight(VOCABULARY, WIDTH, scale=1.0)
        self.layers = [Layer() for _ in range(LAYERS)]
        self.norm = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.head = weight(VOCABULARY, WIDTH, scale=WIDTH ** -0.5)
        self.order = torch.arange(LENGTH, device="cuda")
        frequencies = 10000.0 ** (-torch.arange(0, ROPE, 2, device="cuda", dtype=torch.float32) / ROPE)
        angles = torch.outer(self.order.float(), frequencies)
        self.cos, self.sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
        # What the graphs hand to each other and to the attention. A row is a slot of the cache, whether in use or not.
        self.rows = torch.arange(SLOTS, device="cuda")
        self.inputs = torch.zeros(2, SLOTS, device="cuda", dtype=torch.int64)  # tokens and positions
        self.x = torch.zeros(SLOTS, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.q_latent = torch.zeros(HEADS, SLOTS, LATENT, device="cuda", dtype=torch.bfloat16)
        self.q_rotated = torch.zeros(HEADS, SLOTS, ROPE, device="cuda", dtype=torch.bfloat16)
        self.mixed = torch.zeros(HEADS, SLOTS, LATENT, device="cuda", dtype=torch.bfloat16)
        self.chosen = torch.zeros(SLOTS, device="cuda", dtype=torch.int64)
        self.host_inputs = torch.zeros(2, SLOTS, dtype=torch.int64).pin_memory()
        self.host_chosen = torch.zeros(SLOTS, dtype=torch.int64).pin_memory()
        self.done = torch.cuda.Event(blocking=True)

    def capture(self):
        self.graphs, side = [], torch.cuda.Stream()
        for i in range(LAYERS + 1):
            self.graphs.append(captured(functools.partial(self.piece, i), side, self.graphs[0].pool() if i else None))

    def piece(self, i):
        """From behind the attention of layer i - 1 up to that of layer i."""
        x = self.layers[i - 1].after(self.x, self.mixed) if i else F.embedding(self.inputs[0], self.embedding)
        if i == LAYERS:
            logits = F.linear(F.rms_norm(x, (WIDTH,), self.norm), self.head)
            self.chosen.copy_(logits.argmax(-1))
            return
        layer, positions = self.layers[i], self.inputs[1]
        q_latent, q_rotated, latent, key = layer.before(x, self.cos[positions], self.sin[positions])
        layer.latents[self.rows, positions] = latent
        layer.rotated[self.rows, positions] = key
        self.q_latent.copy_(q_latent)
        self.q_rotated.copy_(q_rotated)
        self.x.copy_(x)

    def attend(self, layer, hidden, longest):
        """Of the slots' newest tokens, over the first `longest` places."""
        latents, rotated = layer.latents[:, :longest], layer.rotated[:, :longest]
        scores = torch.bmm(self.q_latent.transpose(0, 1), latents.transpose(1, 2))
        scores = (scores + torch.bmm(self.q_rotated.transpose(0, 1), rotated.transpose(1, 2))).float() * (NOPE + ROPE) ** -0.5
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1).to(torch.bfloat16)
        self.mixed.copy_(torch.bmm(weights, latents).transpose(0, 1))

    def fetch(self, chosen):
        self.host_chosen[:chosen.shape[0]].copy_(chosen, non_blocking=True)
        self.done.record()
        self.done.synchronize()
        return self.host_chosen[:chosen.shape[0]].tolist()

    def decode(self, tokens, positions, mark):
        self.host_inputs.copy_(torch.tensor([tokens, positions]))
        self.inputs.copy_(self.host_inputs, non_blocking=True)
        longest = max(positions) + 1
        hidden = (self.order[:longest] > self.inputs[1][:, None])[:, None]
        for graph, layer in zip(self.graphs, self.layers):
            graph.replay()
            with mark("attn"):
                self.attend(layer, hidden, longest)
        self.graphs[-1].replay()
        return self.fetch(self.chosen)

    def prefill(self, prompt, slot):
        count = len(prompt)
        cos, sin = self.cos[:count], self.sin[:count]
        hidden = self.order[:count] > self.order[:count, None]
        x = F.embedding(torch.tensor(prompt, device="cuda"), self.embedding)
        for layer in self.layers:
            q_latent, q_rotated, latent, key = layer.before(x, cos, sin)
            layer.latents[slot, :count] = latent
            layer.rotated[slot, :count] = key
            scores = (torch.matmul(q_latent, latent.t()) + torch.matmul(q_rotated, key.t())).float() * (NOPE + ROPE) ** -0.5
            weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1).to(torch.bfloat16)
            x = layer.after(x, torch.matmul(weights, latent))
        logits = F.linear(F.rms_norm(x[-1:], (WIDTH,), self.norm), self.head)
        return self.fetch(logits.argmax(-1))[0]


class Client:
    """Asks, waits for the whole answer, thinks for some milliseconds and asks again."""

    def __init__(self, rng):
        self.rng, self.at = rng, time.monotonic() + rng.uniform(0.0, 0.02)

    def ask(self, prompt=None, outputs=None):
        self.prompt = [self.rng.randrange(VOCABULARY) for _ in range(prompt or self.rng.randint(30, 320))]
        self.outputs = outputs or self.rng.randint(6, 30)
        self.tokens, self.start = [], now()

    def think(self):
        self.at = time.monotonic() + self.rng.uniform(0.005, 0.06)


class Server:
    def __init__(self, model, record, mark):
        self.model, self.record, self.mark = model, record, mark
        self.queue, self.slots = [], [None] * SLOTS

    def admit(self, warm_up=False):
        client, slot = self.queue.pop(0), self.slots.index(None)
        start = now()
        with self.mark("PREFILL"):
            client.tokens.append(self.model.prefill(client.prompt, slot))
        client.first = client.end = now()
        self.record.step("prefill", start, client.first, len(client.prompt), 1, warm_up)
        self.slots[slot] = client

    def decode(self, warm_up=False):
        running = [client for client in self.slots if client]
        start = now()
        with self.mark("DECODE"):
            # An empty slot writes to its own first place, which its next prompt overwrites.
            tokens = [client.tokens[-1] if client else 0 for client in self.slots]
            positions = [len(client.prompt) + len(client.tokens) - 1 if client else 0 for client in self.slots]
            chosen = self.model.decode(tokens, positions, self.mark)
        end = now()
        self.record.step("decode", start, end, len(running), len(running), warm_up)
        for slot, client in enumerate(self.slots):
            if client:
                client.tokens.append(chosen[slot])
                client.end = end
                if len(client.tokens) >= client.outputs:
                    self.close(slot, warm_up)

    def close(self, slot, warm_up=False):
        client, self.slots[slot] = self.slots[slot], None
        assert all(0 <= token < VOCABULARY for token in client.tokens)
        self.record.request(client.start, client.first, client.end, len(client.prompt), len(client.tokens), warm_up)
        client.think()


@torch.no_grad()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    record, model = Record(), Model()
    model.capture()
    torch.cuda.synchronize()
    server = Server(model, record, ranges(args.ranges))
    first = Client(rng)
    first.ask(WARM_UP_PROMPT, 1 + WARM_UP_STEPS)
    server.queue.append(first)
    server.admit(warm_up=True)
    for _ in range(WARM_UP_STEPS):
        server.decode(warm_up=True)
    assert not any(server.slots)

    clients, done = [Client(rng) for _ in range(CLIENTS)], 0
    while done < args.steps:
        for client in clients:
            if client not in server.queue and client not in server.slots and time.monotonic() >= client.at:
                client.ask()
                server.queue.append(client)
        while server.queue and None in server.slots:
            server.admit()
        if not any(server.slots):
            time.sleep(0.001)
        for _ in range(TURN):
            if done < args.steps and any(server.slots):
                server.decode()
                done += 1
    for slot in range(SLOTS):
        if server.slots[slot]:
            server.close(slot)
    assert all(torch.isfinite(layer.latents).all().item() for layer in model.layers)
    record.finish()


if __name__ == "__main__":
    main()
