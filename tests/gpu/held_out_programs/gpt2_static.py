"""A GPT-2 written out by hand with a cache of full length, so that all decode steps have the same shapes; eager, batch 2."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 50257, 512, 2
LAYERS, HEADS, SIZE = 24, 20, 64
WIDTH = HEADS * SIZE
PROMPTS = (200, 60, 256)
WARM_UP_PROMPT, WARM_UP_STEPS = 100, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("keys", torch.zeros(BATCH, HEADS, LENGTH, SIZE))
        self.register_buffer("values", torch.zeros(BATCH, HEADS, LENGTH, SIZE))

    def forward(self, x, positions, hidden):
        batch, count, _ = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, count, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        self.keys.index_copy_(2, positions, k)
        self.values.index_copy_(2, positions, v)
        scores = torch.matmul(q, self.keys.transpose(-1, -2)) * SIZE ** -0.5
        weights = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1)
        y = torch.matmul(weights, self.values).transpose(1, 2).reshape(batch, count, WIDTH)
        x = x + self.projection(y)
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.register_buffer("order", torch.arange(LENGTH))

    def forward(self, ids, positions):
        """Logits after the last of `ids`, which are at `positions`."""
        hidden = self.order[None, :] > positions[:, None]
        x = self.tokens(ids) + self.places(positions)
        for block in self.blocks:
            x = block(x, positions, hidden)
        return F.linear(self.norm(x[:, -1]), self.tokens.weight)


@torch.no_grad()
def complete(model, length, steps, record, mark, warm_up=False):
    prompt = torch.randint(0, VOCABULARY, (BATCH, length))
    start = now()
    with mark("process prompt"):
        positions = torch.arange(length, device="cuda")
        logits = model(prompt.cuda(), positions)
        ids = logits.argmax(-1, keepdim=True)
        outputs = [ids.cpu().flatten().tolist()]
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    position = positions[-1:].clone()
    for i in range(steps):
        step = now()
        with mark(f"decoding step {i + 1}"):
            position += 1
            logits = model(ids, position)
            ids = logits.argmax(-1, keepdim=True)
            outputs.append(ids.cpu().flatten().tolist())
        end = now()
        record.step("decode", step, end, BATCH, BATCH, warm_up)
    for _ in range(BATCH):
        record.request(start, first, end, length, 1 + steps, warm_up)
    assert all(0 <= value < VOCABULARY for row in outputs for value in row)
    assert torch.isfinite(logits).all().item() and position.item() == length - 1 + steps


def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    torch.set_default_dtype(torch.float16)
    with torch.device("cuda"):
        model = GPT2()
    torch.set_default_dtype(torch.float32)
    model.eval().requires_grad_(False)
    torch.cuda.synchronize()
    with mark("warm-up"):
        complete(model, WARM_UP_PROMPT, WARM_UP_STEPS, record, mark, warm_up=True)
    for length, steps in zip(PROMPTS, split(args.steps, len(PROMPTS))):
        complete(model, length, steps, record, mark)
    record.finish()


if __name__ == "__main__":
    main()
