"""A small engine that decodes by one CUDA graph a step over a static cache and waits for each step's tokens."""
import torch
import torch.nn.functional as F

from contract import Record, arguments, now, ranges, split

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, INNER, VOCABULARY = 20, 2048, 32, 8, 64, 5632, 32000
BATCH, PROMPT = 4, 256
GROUP = HEADS // KV_HEADS
WIDTHS = [HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD]


def weight(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16) * shape[-1] ** -0.5


def norm(x, w):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


class Engine:
    def __init__(self, room):
        self.room = room
        self.embedding = weight(VOCABULARY, HIDDEN)
        self.layers = [dict(norm1=torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16), qkv=weight(sum(WIDTHS), HIDDEN), out=weight(HIDDEN, HIDDEN),
                            norm2=torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16), up=weight(2 * INNER, HIDDEN), down=weight(HIDDEN, INNER))
                       for _ in range(LAYERS)]
        self.norm = torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16)
        self.head = weight(VOCABULARY, HIDDEN)
        self.keys = torch.zeros(LAYERS, BATCH, KV_HEADS, room, HEAD, device="cuda", dtype=torch.bfloat16)
        self.values = torch.zeros_like(self.keys)
        frequency = 10000.0 ** (-torch.arange(0, HEAD, 2, device="cuda").float() / HEAD)
        angle = torch.arange(room, device="cuda").float()[:, None] * frequency
        self.cos, self.sin = angle.cos(), angle.sin()
        self.places = torch.arange(room, device="cuda")
        # what the graph reads and writes
        self.token = torch.zeros(BATCH, 1, device="cuda", dtype=torch.long)
        self.position = torch.zeros(1, device="cuda", dtype=torch.long)
        self.on_host = torch.zeros(BATCH, 1, dtype=torch.long, pin_memory=True)
        self.graph = None

    def rotate(self, x, positions):
        cos, sin = self.cos[positions], self.sin[positions]
        a, b = x.float().chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)

    def forward(self, ids, positions, attend):
        x = F.embedding(ids, self.embedding)
        batch, length, _ = x.shape
        for i, layer in enumerate(self.layers):
            q, k, v = F.linear(norm(x, layer["norm1"]), layer["qkv"]).split(WIDTHS, dim=-1)
            q = self.rotate(q.view(batch, length, HEADS, HEAD).transpose(1, 2), positions)
            k = self.rotate(k.view(batch, length, KV_HEADS, HEAD).transpose(1, 2), positions)
            v = v.view(batch, length, KV_HEADS, HEAD).transpose(1, 2)
            self.keys[i].index_copy_(2, positions, k)
            self.values[i].index_copy_(2, positions, v)
            x = x + F.linear(attend(i, q, k, v).transpose(1, 2).reshape(batch, length, HIDDEN), layer["out"])
            gate, up = F.linear(norm(x, layer["norm2"]), layer["up"]).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, layer["down"])
        return F.linear(norm(x[:, -1], self.norm), self.head).argmax(-1, keepdim=True)

    def prefill(self, ids):
        def attend(i, q, k, v):
            return F.scaled_dot_product_attention(q, k.repeat_interleave(GROUP, 1), v.repeat_interleave(GROUP, 1), is_causal=True)
        self.token.copy_(self.forward(ids, self.places[:ids.shape[1]], attend))
        self.position.fill_(ids.shape[1])

    def decode(self):
        """One step of static shapes: the heads of a group are the queries of one key-value head."""
        mask = (self.places <= self.position).view(1, 1, 1, self.room).expand(BATCH, KV_HEADS, GROUP, self.room)

        def attend(i, q, k, v):
            q = q.reshape(BATCH, KV_HEADS, GROUP, HEAD)
            y = F.scaled_dot_product_attention(q, self.keys[i], self.values[i], attn_mask=mask)
            return y.reshape(BATCH, HEADS, 1, HEAD)
        self.token.copy_(self.forward(self.token, self.position, attend))
        self.position.add_(1)

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.decode()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.decode()

    def wait(self):
        self.on_host.copy_(self.token, non_blocking=True)
        torch.cuda.current_stream().synchronize()
        return self.on_host[:, 0].tolist()


@torch.inference_mode()
def main():
    options = arguments(__doc__)
    mark = ranges(options.ranges)
    record = Record()
    torch.manual_seed(options.seed)
    engine = Engine(PROMPT + options.steps + 8)
    prompts = torch.randint(0, VOCABULARY, (BATCH, PROMPT)).pin_memory()

    start = now()
    engine.prefill(prompts.cuda())
    engine.wait()
    record.step("prefill", start, now(), BATCH * PROMPT, BATCH, warm_up=True)
    engine.capture()
    steps_of = split(options.steps, 2)
    outputs = []
    for count in steps_of:
        begin = now()
        with mark("context phase"):
            engine.prefill(prompts.to("cuda", non_blocking=True))
            rows = [engine.wait()]
        first = now()
        record.step("prefill", begin, first, BATCH * PROMPT, BATCH)
        with mark("generation phase"):
            for _ in range(count):
                start = now()
                engine.graph.replay()
                rows.append(engine.wait())
                record.step("decode", start, now(), BATCH, BATCH)
        end = record.steps[-1]["end_ns"]
        for _ in range(BATCH):
            record.request(begin, first, end, PROMPT, 1 + count)
        outputs.append(rows)
    assert all(0 <= token < VOCABULARY for rows in outputs for row in rows for token in row)
    assert outputs[1][:len(outputs[0])] == outputs[0], "the same prompts gave other tokens"
    assert torch.isfinite(engine.keys).all() and len(set(map(tuple, zip(*outputs[1])))) > 1
    record.finish()


main()
