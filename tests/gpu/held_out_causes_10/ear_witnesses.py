"""Four ear witnesses are heard for half a minute each, and what they say is written down by a Whisper model of transformers
with random weights.

The steps are launched one kernel after the other. A step is one decode step, from its first call until the tokens are in a
list on the host.
"""
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from base_loop import begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, BANDS, PLACES = 4, 4, 51865, 80, 1500


def whisper():
    config = WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=BANDS, d_model=1280, encoder_layers=16, decoder_layers=4,
        encoder_attention_heads=20, decoder_attention_heads=20, encoder_ffn_dim=5120, decoder_ffn_dim=5120,
        max_source_positions=PLACES, max_target_positions=448)
    with torch.device("cuda"):
        return WhisperForConditionalGeneration(config).to(torch.bfloat16).eval()


class Witnesses:
    def __init__(self, fixed, seed):
        self.model, self.fixed, self.past = whisper(), fixed, None
        generator = torch.Generator().manual_seed(seed)
        self.sound = torch.randn(BATCH, BANDS, 2 * PLACES, generator=generator).to(torch.bfloat16).cuda()

    def say(self, tokens, **heard):
        said = self.model(decoder_input_ids=tokens, past_key_values=self.past, use_cache=True, **heard)
        self.past, self.tokens = said.past_key_values, greedy(said.logits[:, -1])
        return said

    def words(self):
        return self.tokens[:, 0].tolist()

    def start(self, prompt):
        self.past = None
        said = self.say(prompt, input_features=self.sound)
        self.heard = BaseModelOutput(last_hidden_state=said.encoder_last_hidden_state)
        return self.words()

    def following(self, i):
        if self.fixed:
            self.say(self.tokens, encoder_outputs=self.heard)
        else:
            self.say(self.tokens, input_features=self.sound)
        return self.words()


def main():
    options, record = begin(__doc__)
    witnesses = Witnesses(options.fixed, options.seed)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, witnesses.start, witnesses.following, warm_up=True)
    texts = serve(record, prompt, options.steps, witnesses.start, witnesses.following)
    finish(record, texts, VOCABULARY)


main()
