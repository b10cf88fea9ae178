"""torch.compile in the mode that makes CUDA graphs by itself, around one decode step with a static cache; batch 8."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 32000, 768, 8
LAYERS, HEADS, SIZE, INNER = 16, 20, 128, 6912
WIDTH = HEADS * SIZE
PROMPTS = (90, 200, 90)
WARM_UP_PROMPT, WARM_UP_STEPS = 64, 6     # compiles, runs without a graph, records it, replays it


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate_up, self.down = nn.Linear(WIDTH, 2 * INNER, bias=False), nn.Linear(INNER, WIDTH, bias=False)
        self.register_buffer("keys", torch.zeros(BATCH, HEADS, LENGTH, SIZE))
        self.register_buffer("values", torch.zeros(BATCH, HEADS, LENGTH, SIZE))

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def forward(self, x, places, cos, sin, visible):
        count = x.shape[1]
        q, k, v = self.qkv(self.norm_1(x)).view(BATCH, count, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4).unbind(0)
        q = self.rotate(q, cos, sin)
        self.keys[:, :, places] = self.rotate(k, cos, sin)
        self.values[:, :, places] = v
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=visible)
        x = x + self.out(y.transpose(1, 2).reshape(BATCH, count, WIDTH))
        gate, up = self.gate_up(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2, dtype=torch.float32) / SIZE)
        angles = torch.outer(torch.arange(LENGTH, dtype=torch.float32), frequencies)
        self.register_buffer("cos", angles.cos().to(torch.bfloat16))
        self.register_buffer("sin", angles.sin().to(torch.bfloat16))
        self.register_buffer("order", torch.arange(LENGTH))

    def forward(self, ids, places):
        """The likeliest tokens after the last of `ids` (batch x count), which are at `places` (count)."""
        visible = (self.order[None, :] <= places[:, None])[None, None]
        x = self.embedding(ids)
        cos, sin = self.cos[places], self.sin[places]
        for layer in self.layers:
            x = layer(x, places, cos, sin, visible)
        return self.head(self.norm(x[:, -1])).argmax(-1)


def one_token(model, ids, places):
    return model(ids, places)


class Runner:
    def __init__(self, model):
        self.model = model
        self.decode = torch.compile(one_token, mode="reduce-overhead", fullgraph=True, dynamic=False)
        self.ids = torch.zeros(BATCH, 1, device="cuda", dtype=torch.int64)
        self.place = torch.zeros(1, device="cuda", dtype=torch.int64)

    def prefill(self, prompts):
        places = torch.arange(prompts.shape[1], device="cuda")
        self.ids.copy_(self.model(prompts.cuda(), places)[:, None])
        self.place.fill_(prompts.shape[1])
        return self.ids.flatten().tolist()

    def step(self):
        torch.compiler.cudagraph_mark_step_begin()
        # The result lies in the graph's own memory, which the next replay writes over.
        self.ids.copy_(self.decode(self.model, self.ids, self.place)[:, None])
        self.place.add_(1)
        return self.ids.flatten().tolist()


def run(runner, length, steps, record, mark, warm_up=False):
    prompts = torch.randint(0, VOCABULARY, (BATCH, length))
    start = now()
    with mark("context_encoding"):
        outputs = [runner.prefill(prompts)]
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    for _ in range(steps):
        step = now()
        with mark("token_generation"):
            outputs.append(runner.step())
        end = now()
        record.step("decode", step, end, BATCH, BATCH, warm_up)
    for _ in range(BATCH):
        record.request(start, first, end, length, 1 + steps, warm_up)
    assert all(0 <= value < VOCABULARY for row in outputs for value in row)
    assert runner.place.item() == length + steps


@torch.no_grad()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Model()
    torch.set_default_dtype(torch.float32)
    model.eval().requires_grad_(False)
    runner = Runner(model)
    torch.cuda.synchronize()
    with mark("warm-up until compiled"):
        run(runner, WARM_UP_PROMPT, WARM_UP_STEPS, record, mark, warm_up=True)
    for length, steps in zip(PROMPTS, split(args.steps, len(PROMPTS))):
        run(runner, length, steps, record, mark)
    assert all(torch.isfinite(layer.values).all().item() for layer in model.layers)
    record.finish()


if __name__ == "__main__":
    main()
