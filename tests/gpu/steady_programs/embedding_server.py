"""An embedding server: two threads build and pin batches, each of a shape of its own, the main thread runs the encoder. No warm-up."""
import queue
import random
import threading

import torch
import torch.nn.functional as F
from transformers import BertConfig, BertModel

from contract import Record, arguments, now, ranges

VOCABULARY, PAD, WORKERS = 30522, 0, 2
SHAPES = [(texts, length) for texts in range(1, 13) for length in range(16, 257, 3)]


def build():
    config = BertConfig(vocab_size=VOCABULARY, hidden_size=1024, num_hidden_layers=16, num_attention_heads=16, intermediate_size=4096, pad_token_id=PAD)
    config._attn_implementation = "sdpa"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = BertModel(config, add_pooling_layer=False)
    torch.set_default_dtype(torch.float32)
    return model.eval()


def prepare(worker, shapes, seed, ready, mark):
    """The thread of one worker: every second batch. The last text of a batch repeats the first."""
    for number in range(worker, len(shapes), WORKERS):
        asked = now()
        chance = random.Random(seed * 1000003 + number)
        texts, length = shapes[number]
        with mark("prepare a batch"):
            lengths = [length] + [chance.randint(length // 2, length) for _ in range(texts - 1)]
            rows = [[chance.randrange(1, VOCABULARY) for _ in range(n)] for n in lengths]
            rows[-1] = rows[0]
            ids = torch.tensor([row + [PAD] * (length - len(row)) for row in rows]).pin_memory()
        ready.put((asked, ids, sum(map(len, rows))))


@torch.inference_mode()
def embed(model, ids):
    ids = ids.to("cuda", non_blocking=True)
    mask = ids != PAD
    hidden = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
    mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
    return F.normalize(mean.float(), dim=-1).cpu()


def main():
    options = arguments(__doc__)
    mark = ranges(options.ranges)
    record = Record()
    torch.manual_seed(options.seed)
    model = build()
    shapes = random.Random(options.seed).sample(SHAPES, options.steps)
    queues = [queue.Queue(maxsize=2) for _ in range(WORKERS)]
    threads = [threading.Thread(target=prepare, args=(i, shapes, options.seed, queues[i], mark), daemon=True) for i in range(WORKERS)]
    for thread in threads:
        thread.start()
    for number, (texts, length) in enumerate(shapes):
        asked, ids, tokens = queues[number % WORKERS].get(timeout=60)
        start = now()
        with mark(f"embed {texts} x {length}"):
            vectors = embed(model, ids)
        end = now()
        cold = number == 0  # later batches have shapes of their own too, but that is this server's ordinary life
        record.step("prefill", start, end, tokens, texts, cold)
        record.request(asked, end, end, tokens, 0, cold)
        assert vectors.shape == (texts, 1024) and torch.isfinite(vectors).all()
        assert (vectors.norm(dim=-1) - 1).abs().max() < 1e-3
        assert vectors[0] @ vectors[-1] > 0.99, "the same text twice in a batch has two embeddings"
    for thread in threads:
        thread.join(timeout=10)
    record.finish()


main()
