"""Records two small real torch.profiler traces that need two GPUs.

    python3 tests/clients/record_two_gpus.py OUT_FOLDER

pipeline_two_gpus: one process, the layers of a Llama split over both GPUs. tensor_parallel_rank0: rank 0 of two, each with
half of every matrix, an NCCL all-reduce after attention and after the MLP. Weights are random, nothing is downloaded.
Prints what the programs measured of themselves as JSON.
"""
import gzip
import json
import os
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, record_function

ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.CUDA]


def save(prof, out, name):
    plain = os.path.join(out, name + ".json")
    prof.export_chrome_trace(plain)
    with open(plain, "rb") as source, gzip.open(plain + ".gz", "wb", 9) as target:
        shutil.copyfileobj(source, target)
    os.remove(plain)


def pipeline(out):
    from accelerate import dispatch_model
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_hidden_layers=4, num_attention_heads=32, num_key_value_heads=8,
                         vocab_size=32000)
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    model = dispatch_model(model, device_map={"model.embed_tokens": 0, "model.rotary_emb": 0, "model.layers.0": 0, "model.layers.1": 0,
                                              "model.layers.2": 1, "model.layers.3": 1, "model.norm": 1, "lm_head": 1})

    def run():
        ids = torch.randint(0, 32000, (1, 256), device="cuda:0")
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)
        ms = {"prefill": [], "decode": []}
        token, cache = ids, None
        for step in range(4):
            start = time.perf_counter()
            result = model(token.to("cuda:0"), past_key_values=cache, use_cache=True, logits_to_keep=1)
            token, cache = result.logits[:, -1:].argmax(-1), result.past_key_values
            torch.cuda.synchronize(1)
            ms["decode" if step else "prefill"].append(round(1e3 * (time.perf_counter() - start), 4))
        return ms

    with torch.inference_mode():
        run()
        run()
        with profile(activities=ACTIVITIES, record_shapes=True) as prof:
            ms = run()
    save(prof, out, "pipeline_two_gpus")
    return ms


def tensor_parallel(rank, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    hidden, half = 4096, 14336 // 2

    def weight(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.01

    qkv, output, up, down = weight(hidden, 3 * hidden // 2), weight(hidden // 2, hidden), weight(hidden, half), weight(half, hidden)

    def layer(x):
        a = (x @ qkv)[:, :hidden // 2] @ output
        dist.all_reduce(a)
        x = x + a
        b = torch.nn.functional.silu(x @ up) @ down
        dist.all_reduce(b)
        return x + b

    def run():
        for tokens, name in ((512, "prefill"), (1, "decode"), (1, "decode"), (1, "decode")):
            with record_function(name):
                x = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
                for _ in range(4):
                    x = layer(x)
                torch.cuda.synchronize()

    with torch.inference_mode():
        run()
        run()
        dist.barrier()
        torch.cuda.synchronize()
        with profile(activities=ACTIVITIES, record_shapes=True) as prof:
            run()
    if rank == 0:
        save(prof, out, "tensor_parallel_rank0")
    dist.destroy_process_group()


if __name__ == "__main__":
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    print(json.dumps({"pipeline_two_gpus": pipeline(folder)}))
    mp.spawn(tensor_parallel, args=(folder,), nprocs=2)
