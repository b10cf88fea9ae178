"""A decoder in the manner of a C++ engine: flat weights, one stream, a graph captured by hand, a log that is reallocated each step, GC by hand."""
import gc
import math

import torch
import torch.nn.functional as F

from contract import Record, arguments, now, ranges, split

L, B, C, H, V, PROMPT = 12, 2, 1024, 16, 32000, 24
D = C // H
COLLECT_EVERY = 12


def main():
    options = arguments(__doc__)
    mark = ranges(options.ranges)
    record = Record()
    gc.disable()
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    room = PROMPT + options.steps + 8

    def parameter(*shape, scale=0.02):
        return torch.randn(shape, device="cuda").mul_(scale).half()

    def buffer(*shape, dtype=torch.half):
        return torch.zeros(shape, device="cuda", dtype=dtype)

    wte, wpe, head = parameter(V, C), parameter(room, C), parameter(C, V)
    qkv_w, qkv_b, out_w, out_b = parameter(L, C, 3 * C), parameter(L, 3 * C), parameter(L, C, C), parameter(L, C)
    up_w, up_b, down_w, down_b = parameter(L, C, 4 * C), parameter(L, 4 * C), parameter(L, 4 * C, C), parameter(L, C)
    gain, bias = parameter(2 * L + 1, C) + 1, parameter(2 * L + 1, C)
    keys, values = buffer(L, B, H, room, D), buffer(L, B, H, room, D)
    x, y, qkv, up, logits = buffer(B, C), buffer(B, C), buffer(B, 3 * C), buffer(B, 4 * C), buffer(B, V)
    token, place, places = buffer(B, dtype=torch.long), buffer(1, dtype=torch.long), torch.arange(room, device="cuda")
    on_host = torch.zeros(B, dtype=torch.long).pin_memory()
    prompt = torch.randint(0, V, (B, PROMPT)).cuda()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    torch.cuda.set_stream(stream)

    def forward():
        torch.index_select(wte, 0, token, out=x)
        x.add_(wpe.index_select(0, place))
        hidden = (places > place).view(1, 1, 1, room)
        for i in range(L):
            torch.addmm(qkv_b[i], F.layer_norm(x, (C,), gain[2 * i], bias[2 * i]), qkv_w[i], out=qkv)
            q, k, v = qkv.view(B, 3, H, 1, D).unbind(1)
            keys[i].index_copy_(2, place, k)
            values[i].index_copy_(2, place, v)
            scores = torch.matmul(q, keys[i].transpose(2, 3)).mul_(1 / math.sqrt(D)).masked_fill_(hidden, -math.inf)
            torch.addmm(out_b[i], torch.matmul(scores.softmax(-1), values[i]).view(B, C), out_w[i], out=y)
            x.add_(y)
            torch.addmm(up_b[i], F.layer_norm(x, (C,), gain[2 * i + 1], bias[2 * i + 1]), up_w[i], out=up)
            torch.addmm(down_b[i], F.gelu(up), down_w[i], out=y)
            x.add_(y)
        torch.mm(F.layer_norm(x, (C,), gain[2 * L], bias[2 * L]), head, out=logits)
        torch.argmax(logits, dim=-1, out=token)
        place.add_(1)

    def wait():
        on_host.copy_(token, non_blocking=True)
        stream.synchronize()
        return on_host.tolist()

    start = now()
    forward()  # one eager step, so that nothing is loaded during the capture
    wait()
    record.step("decode", start, now(), B, B, warm_up=True)
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(pool=torch.cuda.graph_pool_handle())
    forward()
    graph.capture_end()

    taken = 0

    def serve(count):
        nonlocal taken
        begin = now()
        with mark("feed prompt"):  # token by token through the same graph; only the last answer counts
            place.zero_()
            for i in range(PROMPT):
                token.copy_(prompt[:, i])
                graph.replay()
            rows = [wait()]
        first = end = now()
        record.step("prefill", begin, first, B * PROMPT, B)
        log = torch.empty((0, B, V), device="cuda")
        for i in range(count):
            start = now()
            with mark("step"):
                graph.replay()
                longer = torch.empty((i + 1, B, V), device="cuda")  # push_back without reserve
                longer[:i].copy_(log)
                longer[i].copy_(logits)
                entry = dict(log=log)
                entry["self"] = entry  # keeps the old log until the collector comes
                log = longer
                rows.append(wait())
            end = now()
            record.step("decode", start, end, B, B)
            taken += 1
            if taken % COLLECT_EVERY == 0:
                with mark("collect"):
                    gc.collect()
        for _ in range(B):
            record.request(begin, first, end, PROMPT, 1 + count)
        assert torch.isfinite(log).all()
        assert torch.equal(log.gather(-1, torch.tensor(rows[1:], device="cuda").unsqueeze(-1)).squeeze(-1), log.amax(-1)), "the log is not that of the tokens"
        return rows

    outputs = [serve(count) for count in split(options.steps, 2)]
    assert outputs[1][:len(outputs[0])] == outputs[0], "the same prompt gave other tokens"
    record.finish()


main()
