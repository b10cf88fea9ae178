"""A small server that answers one request after the other and keeps a log of what it did: the program of client_test.py.

A connection is a request: a line of JSON with `id`, `prompt` (tokens) and `new` (tokens to make), answered by a line a token as
soon as the host knows it. One thread accepts and queues, the main thread serves. The model is a Llama of random weights behind
Hugging Face transformers, eager, with a KV cache. Every step begins with a kernel that does nothing for about as long as the host
needs to launch several steps, so that the rest of the step is queued behind it: the GPU is busy nearly all of a step, and the
log, which knows when a step began and ended, but not when the GPU was idle within, says what the GPU did as well.

The log has a line a request, all times of time.time_ns(): `received`, `taken` from the queue, `host_ms` of the pause planted
then (--pause-ms), `begun` and `sent` of each token. The first token's are the begin and the end of the prefill.

Warm-up requests of its own come first; then it prints READY, its port, and the seconds of a prefill and of a token. It ends by
itself after --requests requests. --stand-in: a model that sleeps, for machines without a GPU.
"""
import argparse
import contextlib
import json
import queue
import socket
import statistics
import threading
import time

PROMPTS = (256, 512, 1024, 1536, 2048)  # few, and all in the warm-up: a new length may load new kernels
TOKENS = (16, 48)
VOCABULARY = 32000
FILL_MS, FILL_US_OF_PROMPT_TOKEN = 20, 4  # one launches a step of this model in 3 to 8 ms, recorded too
CYCLES_PER_US = 1980  # at the H100's and H200's highest clock


class Llama:
    def __init__(self):
        import torch
        import transformers
        self.torch, self.new_cache = torch, transformers.DynamicCache
        config = transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8,
                                          num_attention_heads=16, num_key_value_heads=16, max_position_embeddings=4096)
        torch.manual_seed(0)
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("cuda"):
            self.model = transformers.LlamaForCausalLM(config)
        torch.set_default_dtype(torch.float32)
        self.model.eval().requires_grad_(False)
        # On the GPU already: to copy a prompt there waits for the GPU, and nothing could be queued behind the filling kernel.
        self.words = torch.randint(3, VOCABULARY, (1, max(PROMPTS)), device="cuda")

    def step(self, ids, fill_us):
        with self.torch.inference_mode():
            self.torch.cuda._sleep(int(fill_us * CYCLES_PER_US))
            out = self.model(input_ids=ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
            self.token = out.logits[:, -1].argmax(-1, keepdim=True)
            return int(self.token)

    def prefill(self, count):
        self.cache = self.new_cache()
        return self.step(self.words[:, :count], 1e3 * FILL_MS + FILL_US_OF_PROMPT_TOKEN * count)

    def decode(self):
        return self.step(self.token, 1e3 * FILL_MS)

    def last_call(self):
        """Recorded time ends with the last thing the GPU did: without this, before the client had its last token."""
        self.torch.zeros(1, device="cuda").item()
        self.torch.cuda.synchronize()


class StandIn:
    def prefill(self, count):
        time.sleep(0.004 + 2e-6 * count)
        return 1

    def decode(self):
        time.sleep(0.003)
        return 1

    def last_call(self):
        pass


def accept(listener, count, waiting):
    for _ in range(count):
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a token may wait for the one before it
        with connection.makefile("rb") as lines:
            request = json.loads(lines.readline())
        waiting.put((request, time.time_ns(), connection.sendall, connection.close))


def serve(model, mark, request, send, pause_s=0.0):
    row = {"id": request["id"], "taken": time.time_ns(), "host_ms": 0.0, "begun": [], "sent": []}
    if pause_s > 0:
        time.sleep(pause_s)
        row["host_ms"] = (time.time_ns() - row["taken"]) / 1e6
    for i in range(request["new"]):
        row["begun"].append(time.time_ns())
        with mark("decode" if i else "prefill"):
            token = model.decode() if i else model.prefill(request["prompt"])
        row["sent"].append(time.time_ns())
        send(b'{"token": %d}\n' % token)
    return row


def warm_up(model, mark):
    """Seconds of a prefill, the mean over the lengths of prompts, and of a token: of the second round."""
    for new in (TOKENS[1], 4):
        rows = [serve(model, mark, {"id": -1, "prompt": prompt, "new": new}, lambda line: None) for prompt in PROMPTS]
    tokens = [end - begin for row in rows for begin, end in zip(row["sent"], row["sent"][1:])]
    return statistics.fmean(row["sent"][0] - row["begun"][0] for row in rows) / 1e9, statistics.median(tokens) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--log", required=True)
    parser.add_argument("--pause-ms", type=float, default=0, help="sleep between taking a request and its prefill")
    parser.add_argument("--ranges", action=argparse.BooleanOptionalAction, default=True, help="NVTX ranges around the steps")
    parser.add_argument("--stand-in", action="store_true", help="a model that sleeps, without PyTorch")
    args = parser.parse_args()
    model = StandIn() if args.stand_in else Llama()
    mark = model.torch.cuda.nvtx.range if args.ranges and not args.stand_in else lambda words: contextlib.nullcontext()
    seconds = warm_up(model, mark)
    waiting = queue.SimpleQueue()
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener, open(args.log, "w", encoding="utf-8") as log:
        threading.Thread(target=accept, args=(listener, args.requests, waiting), daemon=True).start()
        print("READY", listener.getsockname()[1], *seconds, flush=True)
        for _ in range(args.requests):
            request, received, send, close = waiting.get()
            row = serve(model, mark, request, send, args.pause_ms / 1e3)
            close()
            log.write(json.dumps({**row, "received": received}) + "\n")
        time.sleep(0.1)  # until the client has its last token
        model.last_call()


if __name__ == "__main__":
    main()
