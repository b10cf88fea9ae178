"""Planted: the output layer runs for all 4096 tokens of a prompt, one of which is used.
Healthy: for the last token only."""
from common import Decoder, options, prefill_request, repeat, tokens

PROMPT = 4096
args = options(__doc__)
model = Decoder(hidden=4096, ffn=8192, layers=2, vocab=128256)
ids = tokens(1, PROMPT)
# The range says how many sequences and tokens it holds, in the form that inference servers use.
repeat(prefill_request(lambda: model(ids, all_logits=not args.healthy),
                       name=f"prefill[bs=1 tok={PROMPT}]"), args.seconds)
