"""The load: a decoder in the shape of Qwen3-0.6B, whose decode step is one CUDA graph of about 930 nodes.

Environment: B (batch, 8), SECS (seconds of graph replay, 6), EAGER=1 (the same step without the graph, at most 6 seconds).
Prints `graph: steps=... tok/s ...` and `eager: ...` lines.
"""
import os
import time

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, INNER, VOCABULARY, CONTEXT = 28, 1024, 16, 8, 128, 3072, 151936, 1024
BATCH = int(os.environ.get("B", "8"))


class Layer(torch.nn.Module):
    """Attention over a static cache, then a gated MLP."""

    def __init__(self):
        super().__init__()
        linear = lambda inputs, outputs: torch.nn.Linear(inputs, outputs, bias=False)  # noqa: E731
        self.q, self.o = linear(HIDDEN, HEADS * HEAD), linear(HEADS * HEAD, HIDDEN)
        self.k, self.v = linear(HIDDEN, KV_HEADS * HEAD), linear(HIDDEN, KV_HEADS * HEAD)
        self.gate, self.up, self.down = linear(HIDDEN, INNER), linear(HIDDEN, INNER), linear(INNER, HIDDEN)
        self.before_attention, self.before_mlp = torch.nn.RMSNorm(HIDDEN), torch.nn.RMSNorm(HIDDEN)
        self.q_norm, self.k_norm = torch.nn.RMSNorm(HEAD), torch.nn.RMSNorm(HEAD)

    def forward(self, x, cache, position, rotation, mask):
        batch = x.shape[0]
        h = self.before_attention(x)
        q = self.q_norm(self.q(h).view(batch, 1, HEADS, HEAD)).transpose(1, 2)
        k = self.k_norm(self.k(h).view(batch, 1, KV_HEADS, HEAD)).transpose(1, 2)
        v = self.v(h).view(batch, 1, KV_HEADS, HEAD).transpose(1, 2)
        q, k = rotate(q, *rotation), rotate(k, *rotation)
        keys, values = cache
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        attended = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, enable_gqa=True)
        x = x + self.o(attended.transpose(1, 2).reshape(batch, 1, HEADS * HEAD))
        h = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotate(t, cos, sin):
    """Rotary position embedding."""
    return t * cos + torch.cat((-t[..., HEAD // 2:], t[..., :HEAD // 2]), -1) * sin


class M(torch.nn.Module):
    """Embedding, layers, norm, and the most likely next token."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = torch.nn.RMSNorm(HIDDEN)

    def forward(self, tokens, caches, position, rotation, mask):
        x = self.embedding(tokens)
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache, position, rotation, mask)
        return F.linear(self.norm(x), self.embedding.weight).argmax(-1)


def run(f, secs, label):
    """Steps for `secs` seconds, each waited for."""
    times, began = [], time.perf_counter()
    while time.perf_counter() - began < secs:
        before = time.perf_counter()
        f()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - before)
    elapsed, count = time.perf_counter() - began, len(times)
    times.sort()
    print(f"{label}: steps={count} {count * BATCH / elapsed:.0f} tok/s mean={elapsed / count * 1e6:.0f}us p50={times[count // 2] * 1e6:.0f} "
          f"p99={times[count * 99 // 100] * 1e6:.0f} max={times[-1] * 1e6:.0f}", flush=True)


def main():
    """Warm-up, capture, runs."""
    torch.manual_seed(0)
    on = dict(device="cuda", dtype=torch.bfloat16)
    with torch.inference_mode():
        model = M().to(**on)
        caches = [tuple(torch.zeros(BATCH, KV_HEADS, CONTEXT, HEAD, **on) for _ in "kv") for _ in range(LAYERS)]
        tokens = torch.zeros(BATCH, 1, dtype=torch.long, device="cuda")
        position = torch.zeros(1, dtype=torch.long, device="cuda")
        rotation = torch.ones(1, 1, 1, HEAD, **on), torch.zeros(1, 1, 1, HEAD, **on)
        mask = torch.ones(BATCH, 1, 1, CONTEXT, dtype=torch.bool, device="cuda")

        def step():
            tokens.copy_(model(tokens, caches, position, rotation, mask))

        for _ in range(3):
            step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        secs = float(os.environ.get("SECS", "6"))
        for _ in range(20):
            graph.replay()
        torch.cuda.synchronize()
        run(graph.replay, secs, "graph")
        if os.environ.get("EAGER"):
            run(step, min(secs, 6), "eager")


if __name__ == "__main__":
    main()
