"""A chat endpoint around transformers: `model.generate` in a thread for each question, a text streamer between.

A step is what `generate` does from one token to the next: it ends when the streamer is handed the token, which is then
on the host, and the next one starts when the streamer has put it into words. The first step starts before the
question goes to the GPU. A request is one question, from its arrival in the main thread to its last token. With
--ranges the thread that generates has "generate" around an answer and "penalty" in each step, the main thread "send"
around each piece of text.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import json
import random
import threading

import torch
from transformers import (LogitsProcessor, LogitsProcessorList, Qwen2Config, Qwen2ForCausalLM, StoppingCriteria,
                          StoppingCriteriaList, TextIteratorStreamer)

from contract import Record, arguments, now, ranges

VOCABULARY = 64000
STOPS = (2, 3, 5)


class Words:
    """Stands in for a tokeniser: all that the streamer asks of one is `decode`."""

    def decode(self, tokens, **_):
        return "".join(f"w{token} " for token in tokens)


class Streamer(TextIteratorStreamer):
    """The library's, with the times at which each token came and was put into words."""

    def __init__(self):
        super().__init__(Words(), skip_prompt=True, timeout=120.0)
        self.came, self.told, self.tokens, self.prompt_is_next = [], [], [], True

    def put(self, value):
        came = now()
        super().put(value)
        if self.prompt_is_next:  # `generate` hands over the prompt before anything else
            self.prompt_is_next = False
            return
        self.tokens += value.tolist()
        self.came.append(came)
        self.told.append(now())


class FrequencyPenalty(LogitsProcessor):
    """Takes something off each word for every time that question and answer have it."""

    def __init__(self, amount, mark):
        self.amount, self.mark, self.scores = amount, mark, None

    def __call__(self, input_ids, scores):
        with self.mark("penalty"):
            times = torch.zeros_like(scores).scatter_add_(1, input_ids, torch.ones_like(input_ids, dtype=scores.dtype))
            self.scores = scores - self.amount * times
            return self.scores


class StopWords(StoppingCriteria):
    """As it stands in many a notebook: each comparison is a kernel, and the `if` waits for it."""

    def __call__(self, input_ids, scores, **_):
        stop = False
        for word in STOPS:
            if input_ids[0, -1] == word:
                stop = True
        return torch.full((input_ids.shape[0],), stop, dtype=torch.bool, device=input_ids.device)


def answer(model, record, mark, penalty, question, steps, warm_up=False):
    """Answers one question by at most `steps` decode steps and says how many it took."""
    start = now()
    streamer = Streamer()
    begun = []

    def work():
        begun.append(now())
        with mark("generate"):
            ids = torch.tensor([question]).to("cuda")
            model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=steps + 1, do_sample=True,
                           temperature=0.9, top_k=50, streamer=streamer,
                           logits_processor=LogitsProcessorList([penalty]),
                           stopping_criteria=StoppingCriteriaList([StopWords()]))

    thread = threading.Thread(target=work)
    thread.start()
    text, sent = "", 0
    for piece in streamer:
        with mark("send"):
            text += piece
            sent += len(json.dumps({"object": "chat.completion.chunk", "delta": piece, "length": len(text)}))
    thread.join()
    came, told = streamer.came, streamer.told
    record.step("prefill", begun[0], came[0], len(question), 1, warm_up)
    for before, end in zip(told, came[1:]):
        record.step("decode", before, end, 1, 1, warm_up)
    record.request(start, came[0], came[-1], len(question), len(came), warm_up)
    assert len(streamer.tokens) == len(came) and all(0 <= token < VOCABULARY for token in streamer.tokens)
    assert text.split() == [f"w{token}" for token in streamer.tokens] and sent > len(text)
    # The library may have struck words out before the penalty, so only the highest score has to be finite.
    assert bool(torch.isfinite(penalty.scores.max())) and not bool(penalty.scores.isnan().any())
    return len(came) - 1


def main():
    options = arguments(__doc__)
    mark, record = ranges(options.ranges), Record()
    torch.manual_seed(options.seed)
    chance = random.Random(options.seed)
    torch.backends.cuda.enable_cudnn_sdp(False)  # else a plan is built for each length

    config = Qwen2Config(vocab_size=VOCABULARY, hidden_size=1536, intermediate_size=6144, num_hidden_layers=20,
                         num_attention_heads=12, num_key_value_heads=2, max_position_embeddings=2048,
                         tie_word_embeddings=True, bos_token_id=None, eos_token_id=None)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen2ForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    torch.cuda.synchronize()

    def question(length):
        return [chance.randrange(VOCABULARY) for _ in range(length)]

    penalty = FrequencyPenalty(0.3, mark)
    answer(model, record, mark, penalty, question(64), 4, warm_up=True)
    left, share = options.steps, -(-options.steps // (3 + options.steps // 60))
    while left:
        # A stop word, which is rare, ends an answer early; then there are more answers.
        left -= answer(model, record, mark, penalty, question(chance.randrange(24, 320)), min(share, left))
    record.finish()


main()
