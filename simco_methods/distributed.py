"""Gathering rows across processes; without a process group the rows as they are."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """Number of processes, 1 without a process group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


class _Gather(torch.autograd.Function):
    # torch's own differentiable all_gather is deprecated and needs an all-to-all under gloo.
    @staticmethod
    def forward(ctx, rows: Tensor) -> Tensor:
        shards = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(shards, rows)
        return torch.cat(shards)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad.chunk(dist.get_world_size())[dist.get_rank()]


def gather_rows(rows: Tensor) -> Tensor:
    """(N, D) of each process to (W * N, D) on all, in rank order; N must be the same on all.

    Gradient flows back to each process's own rows, summed over the processes: with parameter
    gradients averaged across them, W processes of N rows train as one of W * N.
    """
    return rows if world_size() == 1 else _Gather.apply(rows.contiguous())


def mean_over_processes(value: Tensor) -> Tensor:
    """The mean of a number over the processes, without gradient; alone, as it is."""
    if world_size() == 1:
        return value
    total = value.detach().to(torch.promote_types(value.dtype, torch.float32), copy=True)
    dist.all_reduce(total)
    return total / world_size()


def own_rows(rows: Tensor) -> Tensor:
    """The indexes at which this process's ``rows`` stand among the gathered ones, (N,)."""
    rank = dist.get_rank() if world_size() > 1 else 0
    return rank * len(rows) + torch.arange(len(rows), device=rows.device)
