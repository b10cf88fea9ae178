"""Records small real torch.profiler traces of programs that differ in one design choice each, with their own timers.

    python3 tests/clients/record_kineto.py OUT_FOLDER [NAME ...]

Needs a CUDA GPU, torch and transformers; weights are random, nothing is downloaded. Writes OUT_FOLDER/NAME.json.gz and
OUT_FOLDER/truth.json, which holds what each program measured of itself while it was recorded. The golden tests read
recordings made this way on an H200 (tests/golden/inputs/README.md).
"""
import gzip
import json
import os
import shutil
import statistics
import sys
import time
import traceback

import torch
from torch.profiler import ProfilerActivity, profile, record_function


def build(config_type, model_type, attention="sdpa", dtype=torch.bfloat16, **shape):
    config = config_type(**shape)
    config._attn_implementation = attention
    torch.set_default_dtype(dtype)
    with torch.device("cuda"):
        model = model_type(config)
    torch.set_default_dtype(torch.float32)
    return model.eval()


def llama(layers=2, attention="sdpa", dtype=torch.bfloat16, **more):
    from transformers import LlamaConfig, LlamaForCausalLM
    shape = dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=8,
                 vocab_size=128256, max_position_embeddings=131072, rope_theta=500000.0, tie_word_embeddings=False)
    shape.update(more)
    return build(LlamaConfig, LlamaForCausalLM, attention, dtype, **shape)


class Timed:
    """Host timers around synchronised pieces, the truth to compare with."""

    def __init__(self):
        self.ms = {}

    def __call__(self, name, function):
        start = time.perf_counter()
        value = function()
        torch.cuda.synchronize()
        self.ms.setdefault(name, []).append(1e3 * (time.perf_counter() - start))
        return value


def generate(model, batch, prompt, new, timed, prefill_inputs=None, each_step=None):
    """Prefill, then one token at a time, synchronised after each step."""
    vocab = model.config.get_text_config().vocab_size
    inputs = prefill_inputs or dict(input_ids=torch.randint(0, vocab, (batch, prompt), device="cuda"))

    def prefill():
        out = model(**inputs, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1:].argmax(-1), out.past_key_values

    token, cache = timed("prefill", prefill)
    for _ in range(new):
        def step():
            out = model(token, past_key_values=cache, use_cache=True)
            following = out.logits[:, -1:].argmax(-1)
            if each_step is not None:
                each_step(out.logits, following)
            return following
        token = timed("decode", step)


def recorded(run, warmup=1, activities=(ProfilerActivity.CPU, ProfilerActivity.CUDA), **options):
    """Runs `run(timed)` warm, then once more under the profiler. Returns the profile and the timers of that run."""
    with torch.inference_mode():
        for _ in range(warmup):
            run(Timed())
        torch.cuda.synchronize()
        timed = Timed()
        with profile(activities=list(activities), record_shapes=True, **options) as prof:
            run(timed)
    return prof, timed


def vision_language():
    """Qwen2-VL: an image through the vision tower, then prefill and decode. Two layers of each tower."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration
    text = dict(hidden_size=3584, intermediate_size=18944, num_hidden_layers=2, num_attention_heads=28, num_key_value_heads=4,
                vocab_size=152064, max_position_embeddings=32768, rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]},
                tie_word_embeddings=False)
    vision = dict(depth=2, embed_dim=1280, hidden_size=3584, num_heads=16, mlp_ratio=4, patch_size=14, spatial_merge_size=2, temporal_patch_size=2)
    model = build(Qwen2VLConfig, Qwen2VLForConditionalGeneration, text_config=text, vision_config=vision,
                  image_token_id=151655, vision_start_token_id=151652, vision_end_token_id=151653)
    side = 32  # patches a side: 1,024 patches, 256 image tokens
    image_tokens = side * side // 4
    ids = torch.randint(0, 150000, (1, 64), device="cuda")
    ids = torch.cat([ids[:, :32], torch.tensor([[151652]], device="cuda"), torch.full((1, image_tokens), 151655, device="cuda"),
                     torch.tensor([[151653]], device="cuda"), ids[:, 32:]], dim=1)
    inputs = dict(input_ids=ids, pixel_values=torch.randn(side * side, 3 * 2 * 14 * 14, device="cuda", dtype=torch.bfloat16),
                  image_grid_thw=torch.tensor([[1, side, side]], device="cuda"), attention_mask=torch.ones_like(ids),
                  mm_token_type_ids=(ids == 151655).int())
    return recorded(lambda timed: generate(model, 1, 0, 3, timed, prefill_inputs=inputs))


def mixture_of_experts():
    """Mixtral, two layers, batch 4."""
    from transformers import MixtralConfig, MixtralForCausalLM
    model = build(MixtralConfig, MixtralForCausalLM, hidden_size=4096, intermediate_size=14336, num_hidden_layers=2, num_attention_heads=32,
                  num_key_value_heads=8, vocab_size=32000, num_local_experts=8, num_experts_per_tok=2)
    return recorded(lambda timed: generate(model, 4, 128, 3, timed))


def item_per_step():
    """Every step asks for its token on the host and copies all logits to pageable memory."""
    model = llama()

    def each_step(logits, token):
        token[0, 0].item()
        logits.float().cpu()

    return recorded(lambda timed: generate(model, 1, 256, 4, timed, each_step=each_step))


def unfused_attention():
    """Attention as bmm, softmax, bmm."""
    model = llama(attention="eager")
    return recorded(lambda timed: generate(model, 1, 1024, 3, timed))


def fp32_weights():
    """The whole model in fp32."""
    model = llama(dtype=torch.float32, vocab_size=32000)
    return recorded(lambda timed: generate(model, 1, 512, 3, timed))


def batched():
    """Batch 16, long prompts: compute-bound prefill."""
    model = llama(layers=4)
    return recorded(lambda timed: generate(model, 16, 1024, 4, timed))


def serving_annotations():
    """Steps annotated as vLLM does; the third mixes a prompt chunk with running sequences."""
    model = llama()

    def run(timed):
        decode_ids = torch.randint(0, 1000, (4, 1), device="cuda")
        chunk = torch.randint(0, 1000, (1, 256), device="cuda")

        def context():
            with record_function("execute_context_4(256)_generation_0(0)"):
                return model(torch.randint(0, 1000, (4, 64), device="cuda"), use_cache=True, logits_to_keep=1).past_key_values

        cache = timed("prefill", context)
        for step in range(4):
            def one():
                mixed = step == 1
                with record_function(f"execute_context_{int(mixed)}({256 * mixed})_generation_4(4)"):
                    if mixed:
                        model(chunk, use_cache=False, logits_to_keep=1)
                    model(decode_ids, past_key_values=cache, use_cache=True)
            timed("mixed" if step == 1 else "decode", one)

    return recorded(run)


def training():
    """Forward, backward, optimizer: not inference."""
    model = llama(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_attention_heads=16, num_key_value_heads=4).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, 32000, (2, 256), device="cuda")
    timed = Timed()

    def step():
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as prof:
        for _ in range(2):
            timed("step", step)
    return prof, timed


def no_gpu_events():
    """The GPU works but only the CPU is recorded."""
    model = llama(vocab_size=32000)
    return recorded(lambda timed: generate(model, 1, 64, 2, timed), activities=(ProfilerActivity.CPU,))


def two_streams():
    """Copies on a second stream overlap with compute."""
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    host = torch.empty(64 * 1024 * 1024, dtype=torch.uint8).pin_memory()
    side = torch.cuda.Stream()

    def run(timed):
        def both():
            for _ in range(4):
                with torch.cuda.stream(side):
                    host.to("cuda", non_blocking=True)
                a @ a
        timed("all", both)

    return recorded(run)


def compiled():
    """torch.compile: Triton kernels under fused names."""
    model = llama(vocab_size=32000)
    model.forward = torch.compile(model.forward, dynamic=True)
    return recorded(lambda timed: generate(model, 1, 128, 3, timed), warmup=2)


PROGRAMS = [vision_language, mixture_of_experts, item_per_step, unfused_attention, fp32_weights, batched, serving_annotations, training,
            no_gpu_events, two_streams, compiled]


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    truth = {}
    for program in PROGRAMS:
        name = program.__name__
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        try:
            torch.manual_seed(0)
            prof, timed = program()
            plain = os.path.join(out, name + ".json")
            prof.export_chrome_trace(plain)
            with open(plain, "rb") as source, gzip.open(plain + ".gz", "wb", 9) as target:
                shutil.copyfileobj(source, target)
            os.remove(plain)
            truth[name] = {key: [round(v, 4) for v in values] for key, values in timed.ms.items()}
            print(name, os.path.getsize(plain + ".gz"), {key: round(statistics.median(v), 3) for key, v in timed.ms.items()}, flush=True)
        except Exception:  # one program that this machine cannot run must not cost the others
            traceback.print_exc()
        torch.cuda.empty_cache()
    with open(os.path.join(out, "truth.json"), "w") as file:
        json.dump(dict(device=torch.cuda.get_device_name(), torch=torch.__version__, programs=truth), file, indent=1)


main()
