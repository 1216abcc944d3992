"""A Triton kernel launched in a loop, eagerly and from a graph: the profile must have its name and the line that launched it."""
import time

import torch
import triton
import triton.language as tl


@triton.jit
def scaled_add(x, y, out, count, block: tl.constexpr):
    """out = x + 2 y."""
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    inside = offsets < count
    tl.store(out + offsets, tl.load(x + offsets, inside) + 2 * tl.load(y + offsets, inside), inside)


def launch_scaled_add(x, y, out):
    """The line that must be in the profile."""
    scaled_add[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), block=1024)


def main():
    """Eager, then replayed."""
    x, y = torch.ones(1 << 20, device="cuda"), torch.ones(1 << 20, device="cuda")
    out = torch.empty_like(x)
    launch_scaled_add(x, y, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            launch_scaled_add(x, y, out)
    for step in (lambda: launch_scaled_add(x, y, out), graph.replay):
        end = time.monotonic() + 3
        while time.monotonic() < end:
            step()
            torch.cuda.synchronize()
    print("sum", out.sum().item())


if __name__ == "__main__":
    main()
