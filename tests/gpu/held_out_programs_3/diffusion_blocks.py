"""A diffusion language model: blocks of masked tokens are uncovered over several passes, the surest first, in an order the host picks."""
import math, os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 40000, 1024, 2
LAYERS, HEADS, SIZE, INNER = 24, 16, 128, 5632
WIDTH = HEADS * SIZE
MASK = VOCABULARY - 1
BLOCK = 32
FEWEST, MOST = 2, 6  # tokens of a text that one pass uncovers
SHARE = 0.85  # of the surest one's confidence that the others need
PROMPTS = (128, 60, 256, 96, 190, 40)
WARM_UP_PROMPT, WARM_UP_STEPS = 30, 4


def weight(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).mul_(columns ** -0.5)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Layer:
    """Layer norms without bias, attention in both directions, GeGLU."""

    def __init__(self):
        self.norm_1 = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.norm_2 = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.qkv, self.out = weight(3 * WIDTH, WIDTH), weight(WIDTH, WIDTH)
        self.gate_up, self.down = weight(2 * INNER, WIDTH), weight(WIDTH, INNER)
        self.keys = torch.zeros(BATCH, HEADS, LENGTH, SIZE, device="cuda", dtype=torch.bfloat16)
        self.values = torch.zeros_like(self.keys)

    def __call__(self, x, start, cos, sin):
        count, end = x.shape[1], start + x.shape[1]
        qkv = F.linear(F.layer_norm(x, (WIDTH,), self.norm_1), self.qkv).view(BATCH, count, 3, HEADS, SIZE)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        # A later pass over the same places writes them anew.
        self.keys[:, :, start:end] = rotate(k, cos, sin)
        self.values[:, :, start:end] = v
        scores = torch.matmul(rotate(q, cos, sin), self.keys[:, :, :end].transpose(2, 3)).float() * SIZE ** -0.5
        y = torch.matmul(torch.softmax(scores, dim=-1).to(torch.bfloat16), self.values[:, :, :end])
        x = x + F.linear(y.transpose(1, 2).reshape(BATCH, count, WIDTH), self.out)
        gate, up = F.linear(F.layer_norm(x, (WIDTH,), self.norm_2), self.gate_up).chunk(2, dim=-1)
        return x + F.linear(F.gelu(gate) * up, self.down)


class Model:
    def __init__(self):
        self.embedding = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.layers = [Layer() for _ in range(LAYERS)]
        self.norm = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.head = weight(VOCABULARY, WIDTH)
        frequencies = 500000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        angles = torch.outer(torch.arange(LENGTH, device="cuda", dtype=torch.float32), frequencies)
        self.cos, self.sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)

    def forward(self, ids, start):
        """`ids` see each other and all that lies before them."""
        cos, sin = self.cos[start:start + ids.shape[1]], self.sin[start:start + ids.shape[1]]
        x = F.embedding(ids, self.embedding)
        for layer in self.layers:
            x = layer(x, start, cos, sin)
        return x

    def guess(self, block, start):
        """The surest guesses for the masked places of a block: confidences, places and tokens, for each text the surest first."""
        ids = torch.tensor(block, device="cuda")
        logits = F.linear(F.layer_norm(self.forward(ids, start), (WIDTH,), self.norm), self.head).float()
        logits[:, :, MASK] = float("-inf")
        confidences, tokens = torch.softmax(logits, dim=-1).max(dim=-1)
        confidences, places = confidences.masked_fill(ids != MASK, -1.0).topk(MOST, dim=-1)
        return confidences.tolist(), places.tolist(), tokens.gather(1, places).tolist()


class Text:
    """A batch of texts as it grows: what is finished, and the block that is being uncovered."""

    def __init__(self, model, length):
        self.model, self.length = model, length
        self.blocks = 0
        self.block = [[MASK] * BLOCK for _ in range(BATCH)]
        self.outputs = [0] * BATCH

    def begin(self, prompts):
        self.model.forward(prompts.cuda(), 0)
        return self.uncover()

    def advance(self, mark):
        """One pass, before it another that leaves the last block's keys and values as they finally are, if that block is done."""
        if not any(MASK in row for row in self.block):
            with mark("commit"):
                self.model.forward(torch.tensor(self.block, device="cuda"), self.start)
            self.blocks += 1
            self.block = [[MASK] * BLOCK for _ in range(BATCH)]
        with mark("denoise"):
            return self.uncover()

    @property
    def start(self):
        return self.length + self.blocks * BLOCK

    def uncover(self):
        """How many tokens a pass has uncovered in all."""
        total = 0
        for row, guesses in enumerate(zip(*self.model.guess(self.block, self.start))):
            best = guesses[0][0]
            for i, (confidence, place, token) in enumerate(zip(*guesses)):
                # A text that is ahead of the other may have nothing left in this block.
                if confidence > 0 and (i < FEWEST or confidence >= SHARE * best):
                    self.block[row][place] = token
                    self.outputs[row] += 1
                    total += 1
            assert math.isfinite(best)
        return total


def write(model, length, steps, record, mark, warm_up=False):
    prompts = torch.randint(0, MASK, (BATCH, length))
    text = Text(model, length)
    start = now()
    with mark("prompt + first guess"):
        text.begin(prompts)
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    for _ in range(steps):
        step = now()
        count = text.advance(mark)
        end = now()
        record.step("decode", step, end, count, BATCH, warm_up)
    for row in range(BATCH):
        record.request(start, first, end, length, text.outputs[row], warm_up)
    assert all(0 <= token < VOCABULARY for row in text.block for token in row) and text.start + BLOCK <= LENGTH


@torch.inference_mode()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    with mark("warmup"):
        write(model, WARM_UP_PROMPT, WARM_UP_STEPS, record, mark, warm_up=True)
    for length, steps in zip(PROMPTS, split(args.steps, len(PROMPTS))):
        write(model, length, steps, record, mark)
    assert all(torch.isfinite(layer.keys).all().item() for layer in model.layers)
    record.finish()


if __name__ == "__main__":
    main()
