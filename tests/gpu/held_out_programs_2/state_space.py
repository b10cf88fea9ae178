"""A state-space model in the manner of Mamba 2 by PyTorch operators alone: prompts in parallel by chunks, decoding by the state."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, BATCH = 32000, 4
LAYERS, WIDTH, HEADS, SIZE, STATE, TAPS = 32, 2048, 64, 64, 128, 4
INNER = HEADS * SIZE
CHANNELS = INNER + 2 * STATE
CHUNK = 64
TEMPERATURE, NUCLEUS = 0.8, 0.9
PROMPTS = (128, 200, 77, 320, 50, 144)
WARM_UP_PROMPT, WARM_UP_STEPS = 70, 2


def weight(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).mul_(shape[-1] ** -0.5)


class Layer:
    def __init__(self):
        self.norm = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.into = weight(INNER + CHANNELS + HEADS, WIDTH)
        self.taps = torch.randn(TAPS, CHANNELS, device="cuda", dtype=torch.bfloat16).mul_(0.5)
        self.taps_bias = torch.zeros(CHANNELS, device="cuda", dtype=torch.bfloat16)
        self.delta_bias = torch.rand(HEADS, device="cuda") * 4 - 5
        self.rate = torch.linspace(1, 16, HEADS, device="cuda")
        self.skip = torch.ones(HEADS, device="cuda")
        self.norm_out = torch.ones(INNER, device="cuda", dtype=torch.bfloat16)
        self.out = weight(WIDTH, INNER)
        # What is kept from token to token: the last inputs of the convolution, and the state.
        self.window = torch.zeros(BATCH, TAPS - 1, CHANNELS, device="cuda", dtype=torch.bfloat16)
        self.state = torch.zeros(BATCH, HEADS, SIZE, STATE, device="cuda")

    def project(self, x):
        return F.linear(F.rms_norm(x, (WIDTH,), self.norm), self.into).split([INNER, CHANNELS, HEADS], dim=-1)

    def finish(self, x, y, z):
        y = F.rms_norm(y.to(torch.bfloat16) * F.silu(z), (INNER,), self.norm_out)
        return x + F.linear(y, self.out)

    def prefill(self, x, hidden):
        """`x` is batch x count x width; a chunk takes in the state that the one before it left."""
        count = x.shape[1]
        z, mixed, delta = self.project(x)
        inputs = torch.cat([self.window, mixed], dim=1)
        self.window.copy_(inputs[:, -(TAPS - 1):])
        mixed = F.silu(sum(inputs[:, j:j + count] * self.taps[j] for j in range(TAPS)) + self.taps_bias).float()
        u, b, c = mixed.split([INNER, STATE, STATE], dim=-1)
        u = u.view(BATCH, count, HEADS, SIZE)
        delta = F.softplus(delta.float() + self.delta_bias)
        outputs = []
        for start in range(0, count, CHUNK):
            part = slice(start, min(start + CHUNK, count))
            size = part.stop - part.start
            u_part, b_part, c_part, delta_part = u[:, part], b[:, part], c[:, part], delta[:, part]
            total = torch.cumsum(-delta_part * self.rate, dim=1)
            # From every position of the chunk (second) to every later one (first), for each head (last).
            gaps = (total[:, :, None] - total[:, None]).masked_fill(hidden[:size, :size, None], float("-inf"))
            links = torch.exp(gaps) * torch.matmul(c_part, b_part.transpose(1, 2))[..., None] * delta_part[:, None]
            y = torch.einsum("btsh,bshd->bthd", links, u_part)
            y = y + torch.exp(total)[..., None] * torch.einsum("btn,bhdn->bthd", c_part, self.state)
            left = torch.exp(total[:, -1:] - total) * delta_part
            new = torch.einsum("bshd,bsn->bhdn", u_part * left[..., None], b_part)
            self.state.mul_(torch.exp(total[:, -1])[:, :, None, None]).add_(new)
            outputs.append(y + u_part * self.skip[:, None])
        return self.finish(x, torch.cat(outputs, dim=1).reshape(BATCH, count, INNER), z)

    def step(self, x):
        z, mixed, delta = self.project(x)
        inputs = torch.cat([self.window, mixed[:, None]], dim=1)
        self.window.copy_(inputs[:, 1:])
        mixed = F.silu((inputs * self.taps).sum(1) + self.taps_bias).float()
        u, b, c = mixed.split([INNER, STATE, STATE], dim=-1)
        u = u.view(BATCH, HEADS, SIZE)
        delta = F.softplus(delta.float() + self.delta_bias)
        self.state.mul_(torch.exp(-delta * self.rate)[:, :, None, None])
        self.state.add_((u * delta[..., None])[..., None] * b[:, None, None])
        y = torch.matmul(self.state, c[:, None, :, None])[..., 0] + u * self.skip[:, None]
        return self.finish(x, y.reshape(BATCH, INNER), z)


class Model:
    def __init__(self):
        self.embedding = weight(VOCABULARY, WIDTH)
        self.layers = [Layer() for _ in range(LAYERS)]
        self.norm = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.hidden = torch.ones(CHUNK, CHUNK, device="cuda", dtype=torch.bool).triu(1)

    def clear(self):
        for layer in self.layers:
            layer.window.zero_()
            layer.state.zero_()

    def prefill(self, ids):
        x = F.embedding(ids, self.embedding) * WIDTH ** 0.5
        for layer in self.layers:
            x = layer.prefill(x, self.hidden)
        return self.logits(x[:, -1])

    def step(self, ids):
        x = F.embedding(ids, self.embedding) * WIDTH ** 0.5
        for layer in self.layers:
            x = layer.step(x)
        return self.logits(x)

    def logits(self, x):
        return F.linear(F.rms_norm(x, (WIDTH,), self.norm), self.embedding).float()


def sample(logits):
    """One token for each row from the smallest set of tokens that together have the nucleus' share."""
    values, order = torch.sort(torch.softmax(logits / TEMPERATURE, dim=-1), dim=-1, descending=True)
    values = values.masked_fill(torch.cumsum(values, dim=-1) - values > NUCLEUS, 0.0)
    return order.gather(1, torch.multinomial(values, 1))[:, 0]


@torch.no_grad()
def run(model, length, steps, record, mark, warm_up=False):
    prompts = torch.randint(0, VOCABULARY, (BATCH, length)).tolist()
    model.clear()
    start = now()
    with mark(f"batch, prompt {length}"):
        with mark("scan prompt"):
            tokens = sample(model.prefill(torch.tensor(prompts, device="cuda")))
            outputs = [tokens.tolist()]
        first = end = now()
        record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
        for _ in range(steps):
            step = now()
            with mark("advance state"):
                logits = model.step(tokens)
                tokens = sample(logits)
                outputs.append(tokens.tolist())
            end = now()
            record.step("decode", step, end, BATCH, BATCH, warm_up)
    for _ in range(BATCH):
        record.request(start, first, end, length, 1 + steps, warm_up)
    texts = [" ".join(str(row[i]) for row in outputs) for i in range(BATCH)]
    assert all(texts) and all(0 <= token < VOCABULARY for row in outputs for token in row)
    assert torch.isfinite(logits).all().item() and torch.isfinite(model.layers[-1].state).all().item()


def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    torch.cuda.synchronize()
    run(model, WARM_UP_PROMPT, WARM_UP_STEPS, record, mark, warm_up=True)
    for length, steps in zip(PROMPTS, split(args.steps, len(PROMPTS))):
        run(model, length, steps, record, mark)
    record.finish()


if __name__ == "__main__":
    main()
