"""A research sampler on a GPT-2 shape that looks at everything on the host: eight .item() a token. No warm-up."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from contract import Record, arguments, now, ranges, split

LAYERS, HIDDEN, HEADS, VOCABULARY, EOS = 24, 1024, 16, 50257, 50256
PROMPTS = (96, 160, 160)
TEMPERATURE, NUCLEUS = 0.8, 0.9


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.c_attn, self.c_proj = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.c_fc, self.c_out = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x, past):
        batch, length, _ = x.shape
        q, k, v = (y.view(batch, length, HEADS, -1).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).split(HIDDEN, dim=2))
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        if past is None:
            later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, float("-inf"))
        y = scores.softmax(-1) @ v
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, HIDDEN))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)))), (k, v)


class GPT(nn.Module):
    def __init__(self, room):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(room, HIDDEN)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(HIDDEN)
        self.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, ids, past, start):
        x = self.wte(ids) + self.wpe(torch.arange(start, start + ids.shape[1], device=ids.device))
        present = []
        for block, kv in zip(self.h, past or [None] * LAYERS):
            x, kv = block(x, kv)
            present.append(kv)
        return self.lm_head(self.ln_f(x[:, -1])), present


def sample(logits, history, generator):
    """The next token and what the researcher logs of it; each .item() waits for the GPU."""
    finite = torch.isfinite(logits).all().item()
    top = logits.max().item()
    probability = (logits.float() / TEMPERATURE).softmax(-1)
    entropy = -(probability * probability.clamp_min(1e-9).log()).sum().item()
    end_of_text = probability[0, EOS].item()
    ordered, order = probability.sort(dim=-1, descending=True)
    kept = (ordered.cumsum(-1) - ordered < NUCLEUS).sum().item()
    ordered, order = ordered[0, :kept], order[0, :kept]
    noise = torch.empty_like(ordered).exponential_(1.0, generator=generator)
    token = order[(ordered / noise).argmax()].item()
    surprise = -probability[0, token].log().item()
    seen = (history == token).sum().item()
    return token, dict(finite=finite, top=top, entropy=entropy, end_of_text=end_of_text, kept=kept, surprise=surprise, seen=seen)


@torch.no_grad()
def main():
    options = arguments(__doc__)
    mark = ranges(options.ranges)
    record = Record()
    torch.manual_seed(options.seed)
    with torch.device("cuda"):
        model = GPT(max(PROMPTS) + options.steps + 1).half().eval()
    prompts = [torch.randint(0, VOCABULARY, (1, length)) for length in sorted(set(PROMPTS))]
    prompts = [next(p for p in prompts if p.shape[1] == length) for length in PROMPTS]

    def generate(number, prompt, count):
        """The first request is the first use of every kernel: itself, its prefill and its first decoded token are cold."""
        cold = number == 0
        generator = torch.Generator("cuda").manual_seed(options.seed + prompt.shape[1])
        begin = now()
        with mark("prompt"):
            history = prompt.cuda()
            logits, past = model(history, None, 0)
            token, notes = sample(logits, history, generator)
        first = end = now()
        record.step("prefill", begin, first, prompt.shape[1], 1, cold)
        tokens, log = [token], [notes]
        for i in range(count):
            start = now()
            with mark("next token"):
                new = torch.tensor([[token]], device="cuda")
                with mark("forward"):
                    logits, past = model(new, past, history.shape[1])
                history = torch.cat((history, new), dim=1)
                with mark("look and sample"):
                    token, notes = sample(logits, history, generator)
            end = now()
            record.step("decode", start, end, 1, 1, cold and i == 0)
            tokens.append(token)
            log.append(notes)
        record.request(begin, first, end, prompt.shape[1], len(tokens), cold)
        assert all(x["finite"] and -0.01 <= x["entropy"] <= math.log(VOCABULARY) + 0.01 and x["kept"] > 0 and math.isfinite(x["surprise"]) for x in log)
        return tokens

    outputs = [generate(i, prompts[i], count) for i, count in enumerate(split(options.steps, len(PROMPTS)))]
    assert outputs[2][:len(outputs[1])] == outputs[1], "the same prompt and seed gave other tokens"
    record.finish()


main()
