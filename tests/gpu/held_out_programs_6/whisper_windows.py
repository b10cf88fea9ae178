"""A long recording, transcribed window by window with transformers' Whisper and a loop of one's own.

A step ends when the next token is on the host by .item(): a prefill step sends up thirty seconds of sound, makes their log-mel
spectrogram, runs the encoder and lets the decoder take in its prompt (the end of what was written so far, and five marks); a decode
step is one more token through the decoder. A request is one window. With --ranges a window has a range with its number; inside it
are "listen" (the sound's part of the prefill step), "first word" (the rest of it) and a "word" for each decode step.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import random

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

from contract import Record, arguments, now, ranges, split

RATE, SECONDS, MELS, BINS = 16000, 30, 128, 201
WORDS, VOCABULARY = 50257, 51866  # behind the words come marks: end, start, languages, times
START, ENGLISH, TRANSCRIBE, EARLIER, NO_TIMES = 50258, 50259, 50360, 50362, 50364
REMEMBERED = 64  # as many of the last tokens go into the next window's prompt


class Ears:
    """The log-mel spectrogram, on the GPU."""

    def __init__(self):
        self.window = torch.hann_window(400, device="cuda")
        middles = torch.linspace(1, BINS - 2, MELS, device="cuda")
        distance = (torch.arange(BINS, device="cuda") - middles[:, None]).abs()
        self.filters = (1 - distance / 2).clamp(min=0)

    def __call__(self, sound):
        power = torch.stft(sound, 400, 160, window=self.window, return_complex=True)[:, :-1].abs() ** 2
        logs = (self.filters @ power).clamp(min=1e-10).log10()
        return (torch.maximum(logs, logs.max() - 8) + 4) / 4


def transcribe(record, mark, model, ears, silence, sound, earlier, steps, name, warm_up=False):
    prompt = [EARLIER] + earlier[-REMEMBERED:] + [START, ENGLISH, TRANSCRIBE, NO_TIMES]

    def word(ids, past):
        out = model(encoder_outputs=encoded, decoder_input_ids=ids, past_key_values=past, use_cache=True)
        token = (out.logits[:, -1] + silence).argmax(-1, keepdim=True)
        return token, out.past_key_values, token.item()

    start = now()
    with mark(name):
        with mark("listen"):
            features = ears(sound.to("cuda")).to(torch.float16)
            encoded = model.model.encoder(features[None])
        with mark("first word"):
            token, past, number = word(torch.tensor([prompt]).to("cuda"), None)
        first = end = now()
        record.step("prefill", start, first, len(prompt), 1, warm_up)
        text = [number]
        for _ in range(steps):
            begin = now()
            with mark("word"):
                token, past, number = word(token, past)
                text.append(number)
            end = now()
            record.step("decode", begin, end, 1, 1, warm_up)
    record.request(start, first, end, len(prompt), len(text), warm_up)
    assert all(0 <= number < WORDS for number in text) and bool(torch.isfinite(encoded[0]).all())
    return text


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would build a plan for each new length
    chance, mark, record = random.Random(options.seed), ranges(options.ranges), Record()
    # The shape of the "turbo" model: a large encoder, and a decoder of four layers.
    config = WhisperConfig(vocab_size=VOCABULARY, num_mel_bins=MELS, d_model=1280, encoder_layers=32, encoder_attention_heads=20,
                           encoder_ffn_dim=5120, decoder_layers=4, decoder_attention_heads=20, decoder_ffn_dim=5120)
    with torch.device("cuda"):
        model = WhisperForConditionalGeneration(config)
    model = model.to(torch.float16).eval()
    ears = Ears()
    silence = torch.zeros(VOCABULARY, device="cuda", dtype=torch.float16)
    silence[WORDS:] = float("-inf")  # no marks: a window goes on until it has its share of the steps
    parts = split(options.steps, max(8, min(25, options.steps // 6)))
    recording = [torch.randn(RATE * SECONDS, device="cuda").mul_(0.1).cpu() for _ in range(len(parts) + 1)]
    torch.cuda.synchronize()

    # Names and terms that the user gave, which stand for the text before the first window.
    text = [chance.randrange(WORDS) for _ in range(REMEMBERED)]
    transcribe(record, mark, model, ears, silence, recording.pop(), text, 3, "test window", warm_up=True)
    for number, (steps, sound) in enumerate(zip(parts, recording)):
        text += transcribe(record, mark, model, ears, silence, sound, text, steps, f"window {number}")
    record.finish()


main()
