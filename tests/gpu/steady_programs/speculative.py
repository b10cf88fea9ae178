"""Speculative decoding: the model's own first layers draft four tokens, the whole model verifies them, the host reads how many hold."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from contract import Record, arguments, now, ranges, split

LAYERS, DRAFT_LAYERS, HIDDEN, HEADS, INNER, VOCABULARY = 20, 4, 1536, 12, 4096, 32000
HEAD = HIDDEN // HEADS
PROMPT, AHEAD = 220, 4


class Block(nn.Module):
    def __init__(self, strength):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN, eps=1e-5), nn.RMSNorm(HIDDEN, eps=1e-5)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate, self.up, self.down = nn.Linear(HIDDEN, INNER, bias=False), nn.Linear(HIDDEN, INNER, bias=False), nn.Linear(INNER, HIDDEN, bias=False)
        with torch.no_grad():  # the late layers of a trained model change little
            self.out.weight.mul_(strength)
            self.down.weight.mul_(strength)

    def forward(self, x, cache, start, mask):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        end = start + length
        cache[0][:, :, start:end], cache[1][:, :, start:end] = k, v
        y = F.scaled_dot_product_attention(q, cache[0][:, :, :end], cache[1][:, :, :end], attn_mask=mask, is_causal=mask is None and length > 1)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, HIDDEN))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self, room):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(room, HIDDEN)
        self.blocks = nn.ModuleList(Block(1.0 if i < DRAFT_LAYERS else 0.3) for i in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(HIDDEN, eps=1e-5), nn.Linear(HIDDEN, VOCABULARY, bias=False)
        self.caches = {depth: torch.zeros(depth, 2, 1, HEADS, room, HEAD) for depth in (DRAFT_LAYERS, LAYERS)}

    def forward(self, ids, start, depth, keep):
        """Greedy next tokens of the last `keep` places by the first `depth` layers, of which the draft has a cache of its own."""
        length = ids.shape[1]
        x = self.tokens(ids) + self.places.weight[start:start + length]
        mask = None
        if start and length > 1:
            mask = torch.ones(length, start + length, dtype=torch.bool, device=ids.device).tril(start)
        for block, cache in zip(self.blocks[:depth], self.caches[depth]):
            x = block(x, cache, start, mask)
        return self.head(self.norm(x[:, -keep:])).argmax(-1)


def build(room):
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Model(room).eval()
    torch.set_default_dtype(torch.float32)
    return model


@torch.inference_mode()
def main():
    options = arguments(__doc__)
    mark = ranges(options.ranges)
    record = Record()
    torch.manual_seed(options.seed)
    model = build(PROMPT + (options.steps + 4) * (AHEAD + 1) + 1)
    prompt = torch.randint(0, VOCABULARY, (1, PROMPT))

    def round_of(tokens, drafted):
        """One round: tokens[:drafted] are in the draft's cache, tokens[:-1] in the model's. Returns the new tokens."""
        with mark("draft"):
            ids = torch.tensor([tokens[drafted:]], device="cuda")
            last, place, guesses = ids[:, -1:], drafted, []
            for _ in range(AHEAD):
                guess = model(ids, place, DRAFT_LAYERS, 1)
                place += ids.shape[1]
                guesses.append(guess)
                ids = guess
        with mark("verify"):
            guesses = torch.cat(guesses, dim=1)
            truth = model(torch.cat((last, guesses), dim=1), len(tokens) - 1, LAYERS, AHEAD + 1)
            accepted = (guesses == truth[:, :-1]).long().cumprod(-1).sum().item()
            return truth[0, :accepted + 1].tolist()

    def generate(rounds, warm_up):
        begin = now()
        with mark("prompt"):
            ids = prompt.cuda()
            token = model(ids, 0, LAYERS, 1)
            model(ids, 0, DRAFT_LAYERS, 1)  # fills the draft's cache
            tokens = prompt[0].tolist() + [token.item()]
        first = end = now()
        record.step("prefill", begin, first, PROMPT, 1, warm_up)
        drafted, yields = PROMPT, []
        for _ in range(rounds):
            start = now()
            new = round_of(tokens, drafted)
            end = now()
            record.step("decode", start, end, len(new), 1, warm_up)
            drafted = len(tokens) + min(len(new) - 1, AHEAD - 1)  # a guess that held is in the draft's cache, but for the last
            tokens += new
            yields.append(len(new))
        record.request(begin, first, end, PROMPT, len(tokens) - PROMPT, warm_up)
        assert all(0 <= token < VOCABULARY for token in tokens) and all(1 <= n <= AHEAD + 1 for n in yields)
        return tokens

    generate(3, warm_up=True)
    outputs = [generate(rounds, warm_up=False) for rounds in split(options.steps, 2)]
    assert outputs[1][:len(outputs[0])] == outputs[0], "the same prompt gave other tokens"
    assert all(torch.isfinite(cache).all() for cache in model.caches.values())
    record.finish()


main()
