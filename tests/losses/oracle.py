"""Textbook float64 forms of the losses, to hold the stable ones to. Slow, and plain on purpose."""

import torch


def probabilities(query, key, negatives, tau):
    """Softmax of positive (column 0) and negatives, (N, 1 + M)."""
    positive = (query * key).sum(dim=1, keepdim=True)
    return torch.softmax(torch.cat([positive, query @ negatives.T], dim=1) / tau, dim=1)


def in_batch(function, query, key, *args):
    """The rows of ``function`` applied anchor by anchor, with all other keys as negatives."""
    others = [torch.cat([key[:i], key[i + 1 :]]) for i in range(len(key))]
    return torch.cat(
        [function(query[i : i + 1], key[i : i + 1], others[i], *args) for i in range(len(key))]
    )


def odds(query, key, negatives, tau):
    """(1 - p+) / p+, which keeps its digits where either is next to nothing."""
    similarities = query @ negatives.T - (query * key).sum(dim=1, keepdim=True)
    return torch.exp(similarities / tau).sum(dim=1)


def info_nce(query, key, negatives, tau):
    return torch.log1p(odds(query, key, negatives, tau))


def weight(query, key, negatives, tau):
    ratio = odds(query, key, negatives, tau)
    return ratio / (1 + ratio)


def dual(query, key, vector, scalar, tau_alpha, tau_beta):
    ratio = weight(query, key, scalar, tau_beta) / weight(query, key, vector, tau_alpha)
    return ratio.detach() * info_nce(query, key, vector, tau_alpha)


def dual_in_batch(query, key, tau_alpha, tau_beta):
    return in_batch(
        lambda q, k, others: dual(q, k, others, others, tau_alpha, tau_beta), query, key
    ).mean()
