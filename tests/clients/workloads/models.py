"""Published model shapes, built with random bf16 weights on the GPU through Hugging Face transformers."""
import torch

LLAMA_8B = dict(kind="Llama", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                num_key_value_heads=8, vocab_size=128256, max_position_embeddings=131072, rope_theta=500000.0,
                tie_word_embeddings=False)
TINYLLAMA = dict(kind="Llama", hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32,
                 num_key_value_heads=4, vocab_size=32000, max_position_embeddings=2048, tie_word_embeddings=False)
QWEN_HALF_B = dict(kind="Qwen2", hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                   num_key_value_heads=2, vocab_size=151936, max_position_embeddings=32768, rope_theta=1000000.0,
                   tie_word_embeddings=True)
# By the names that `llmprof model` knows.
MODELS = {"llama-3.1-8b": LLAMA_8B, "tinyllama-1.1b": TINYLLAMA, "qwen2.5-0.5b": QWEN_HALF_B}


def build(name, layers=0, attention="sdpa"):
    """The model in evaluation mode; `layers` of them if not 0."""
    import transformers
    shape = dict(MODELS[name])
    kind = shape.pop("kind")
    if layers:
        shape["num_hidden_layers"] = layers
    config = getattr(transformers, kind + "Config")(**shape)
    config._attn_implementation = attention
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            model = getattr(transformers, kind + "ForCausalLM")(config)
    finally:
        torch.set_default_dtype(torch.float32)
    return model.eval()


def vocabulary(name):
    return MODELS[name]["vocab_size"]
