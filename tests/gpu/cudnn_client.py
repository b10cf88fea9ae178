"""cuDNN's attention and convolution with known shapes, eager and by CUDA graph."""
import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

REPEATS = 20


def main():
    def tensor(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    query, key, value = (tensor(2, 32, 512, 128) for _ in range(3))
    image, weight = tensor(8, 64, 56, 56), tensor(128, 64, 3, 3)
    with torch.no_grad(), sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        def step():
            with torch.cuda.nvtx.range("causal"):
                functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            with torch.cuda.nvtx.range("one_query"):
                functional.scaled_dot_product_attention(query[:, :, :1], key, value)
            with torch.cuda.nvtx.range("convolution"):
                functional.conv2d(image, weight, stride=2, padding=1)
            torch.cuda.synchronize()

        for _ in range(REPEATS):
            step()
        side = torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            functional.scaled_dot_product_attention(query[:, :, :1], key, value)
            functional.conv2d(image, weight, stride=2, padding=1)
        for _ in range(REPEATS):
            with torch.cuda.nvtx.range("replayed"):
                graph.replay()
                torch.cuda.synchronize()
    print("RESULT {}")


main()
