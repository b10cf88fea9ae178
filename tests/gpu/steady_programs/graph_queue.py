"""Throughput decoding: CUDA graph replays are queued without waiting, the tokens of eight steps are fetched at once."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from contract import Record, arguments, now, ranges, split

LAYERS, HIDDEN, HEADS, INNER, VOCABULARY = 18, 1536, 12, 6144, 50304
HEAD = HIDDEN // HEADS
BATCH, PROMPT, QUEUE = 16, 128, 8


class ParallelBlock(nn.Module):
    """Attention and MLP read the same norm, as in GPT-NeoX and Phi."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.qkv_up = nn.Linear(HIDDEN, 3 * HIDDEN + INNER)
        self.out = nn.Linear(HIDDEN, HIDDEN)
        self.down = nn.Linear(INNER, HIDDEN)

    def forward(self, x, attend):
        batch, length, _ = x.shape
        qkv, up = self.qkv_up(self.norm(x)).split((3 * HIDDEN, INNER), dim=-1)
        q, k, v = qkv.view(batch, length, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        y = attend(q, k, v).transpose(1, 2).reshape(batch, length, HIDDEN)
        return x + self.out(y) + self.down(F.gelu(up, approximate="tanh"))


class Model(nn.Module):
    def __init__(self, room):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = nn.Embedding(room, HIDDEN)
        self.blocks = nn.ModuleList(ParallelBlock() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        for name in "keys", "values":
            self.register_buffer(name, torch.zeros(LAYERS, BATCH, HEADS, room, HEAD))

    def forward(self, ids, places, attend):
        x = self.tokens(ids) + self.positions(places)
        for i, block in enumerate(self.blocks):
            x = block(x, lambda q, k, v: attend(i, q, k, v))
        return self.head(self.norm(x[:, -1])).argmax(-1)


class Runner:
    def __init__(self, room):
        torch.set_default_dtype(torch.float16)
        with torch.device("cuda"):
            self.model = Model(room).eval()
        torch.set_default_dtype(torch.float32)
        self.room = room
        self.places = torch.arange(room, device="cuda")
        self.ids = torch.zeros(BATCH, 1, device="cuda", dtype=torch.long)
        self.place = torch.zeros(1, device="cuda", dtype=torch.long)
        self.slot = torch.zeros(1, device="cuda", dtype=torch.long)
        self.ring = torch.zeros(QUEUE, BATCH, device="cuda", dtype=torch.long)
        self.fetched = torch.zeros(QUEUE, BATCH, dtype=torch.long).pin_memory()
        self.done = torch.cuda.Event()

    def prefill(self, ids):
        def attend(i, q, k, v):
            self.model.keys[i, :, :, :ids.shape[1]] = k
            self.model.values[i, :, :, :ids.shape[1]] = v
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        self.ids.copy_(self.model(ids, self.places[:ids.shape[1]], attend).unsqueeze(1))
        self.place.fill_(ids.shape[1])
        self.slot.zero_()

    def step(self):
        bias = torch.zeros(self.room, device="cuda", dtype=torch.float16).masked_fill(self.places > self.place, float("-inf"))
        bias = bias.expand(BATCH, HEADS, 1, self.room)

        def attend(i, q, k, v):
            keys, values = self.model.keys[i], self.model.values[i]
            keys.index_copy_(2, self.place, k)
            values.index_copy_(2, self.place, v)
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=bias)
        tokens = self.model(self.ids, self.place, attend)
        self.ring.index_copy_(0, self.slot, tokens.unsqueeze(0))
        self.ids.copy_(tokens.unsqueeze(1))
        self.place.add_(1)
        self.slot.add_(1).remainder_(QUEUE)

    def capture(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()

    def fetch(self):
        self.fetched.copy_(self.ring, non_blocking=True)
        self.done.record()
        self.done.synchronize()
        return self.fetched.tolist()


@torch.inference_mode()
def main():
    options = arguments(__doc__)
    mark = ranges(options.ranges)
    record = Record()
    torch.manual_seed(options.seed)
    runner = Runner(PROMPT + max(options.steps, QUEUE) + 8)
    prompts = torch.randint(0, VOCABULARY, (BATCH, PROMPT))

    def serve(count, warm_up):
        begin = now()
        with mark("prompt"):
            runner.prefill(prompts.cuda())
            rows = [runner.ids[:, 0].tolist()]
        first = end = now()
        record.step("prefill", begin, first, BATCH * PROMPT, BATCH, warm_up)
        for chunk in range(0, count, QUEUE):
            queued = min(QUEUE, count - chunk)
            start = now()
            with mark("burst"):
                for _ in range(queued):
                    runner.graph.replay()
                rows += runner.fetch()[:queued]
            end = now()
            record.divided("decode", start, end, queued, BATCH, BATCH, warm_up)
        for _ in range(BATCH):
            record.request(begin, first, end, PROMPT, 1 + count, warm_up)
        return rows

    with mark("engine warm-up"):
        runner.prefill(prompts.cuda())
        runner.capture()
        outputs = [serve(QUEUE, warm_up=True)]
    outputs += [serve(count, warm_up=False) for count in split(options.steps, 2)]
    shortest = min(map(len, outputs))
    assert outputs[0][:shortest] == outputs[1][:shortest] == outputs[2][:shortest], "the same prompts gave other tokens"
    assert all(0 <= token < VOCABULARY for rows in outputs for row in rows for token in row)
    assert torch.isfinite(runner.model.keys).all()
    record.finish()


main()
