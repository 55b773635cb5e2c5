"""How many drafts a verification accepts: standard and block, exactly, and a small model of agreement.

Sources: standard (token by token) verification is Leviathan et al., "Fast Inference from Transformers
via Speculative Decoding" (2023); block verification is Sun et al., "Block Verification Accelerates
Speculative Decoding" (2025), Algorithm 2. Both are lossless. p is the target's conditional, q the
draft's, τ the number of drafts accepted.

The exact part works in whatever numbers the distributions are made of: with Fractions it is exact. It
enumerates every draft, so it is for small vocabularies and few slots. The model at the end turns a
survival curve under one of the two into the curve under the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

# float or Fraction; the two do not share a type that a checker knows.
Number: TypeAlias = Any
Prefix: TypeAlias = tuple[int, ...]
Conditional: TypeAlias = Callable[[Prefix], Sequence[Number]]  # tokens so far -> distribution of the next
METHODS = ("standard", "block")

# Share of rejections in which the target would never say what was drafted, the others being a matter of
# weights. 0.8 gives what has been published of block verification: 2-4% more tokens a step at depth 3
# (vLLM's and SGLang's own measurements), 7-10% at depth 8 (the paper's).
OUTRIGHT = 0.8
_CELLS = 1024  # of a prefix's ratio between 0 and 1


def verify(
    method: str, target: Conditional, draft: Conditional, drafted: Prefix, uniforms: Sequence[float]
) -> Prefix:
    """The tokens that one step emits: the accepted part of `drafted`, then one from the target's side.

    `uniforms` [len(drafted) + 1] in [0, 1): one for each slot, the last for the token after. Raises
    ValueError for an unknown method, a draft that the drafter cannot have made, and too few uniforms.
    """
    if len(uniforms) <= len(drafted):
        raise ValueError(f"{len(drafted)} drafts need {len(drafted) + 1} uniforms, not {len(uniforms)}")
    accepted = 0
    if method == "standard":
        # The first slot that is refused ends it.
        for i, ratio in enumerate(_ratios(target, draft, drafted)):
            if uniforms[i] >= ratio:
                break
            accepted = i + 1
    else:
        # The last slot that is accepted counts, whatever became of those before.
        for i, chance in enumerate(_chances(method, target, draft, drafted), 1):
            if uniforms[i - 1] < chance:
                accepted = i
    weights = _next(method, target, draft, drafted, accepted)
    return (*drafted[:accepted], pick(weights, uniforms[len(drafted)]))


def propose(draft: Conditional, slots: int, uniforms: Sequence[float]) -> Prefix:
    """A draft of `slots` tokens sampled from q, one of `uniforms` for each."""
    tokens: Prefix = ()
    for i in range(slots):
        tokens = (*tokens, pick(draft(tokens), uniforms[i]))
    return tokens


def pick(weights: Sequence[Number], uniform: float) -> int:
    """The index that `uniform` in [0, 1) falls on, in proportion to `weights`."""
    left = uniform * sum(weights)
    positive = [i for i, weight in enumerate(weights) if weight > 0]
    for i in positive:
        left -= weights[i]
        if left < 0:
            return i
    return positive[-1]  # rounding


def outcomes(method: str, target: Conditional, draft: Conditional, slots: int) -> dict[Prefix, Number]:
    """The probability of everything that one step with `slots` drafts may emit (1 to slots + 1 tokens)."""
    found: dict[Prefix, Number] = {}
    for drafted, weight in _drafts(draft, slots):
        for accepted, chance in enumerate(_accepted(method, target, draft, drafted)):
            if not chance:
                continue
            weights = _next(method, target, draft, drafted, accepted)
            total = sum(weights)
            for token, share in enumerate(weights):
                if share:
                    emitted = (*drafted[:accepted], token)
                    found[emitted] = found.get(emitted, 0) + weight * chance * share / total
    return found


def extended(found: Mapping[Prefix, Number], target: Conditional, length: int) -> dict[Prefix, Number]:
    """The distribution of the first `length` tokens when the target goes on after what a step emitted."""
    whole: dict[Prefix, Number] = {}
    for emitted, weight in found.items():
        for tokens, chance in _drafts(target, length, emitted, weight):
            whole[tokens] = whole.get(tokens, 0) + chance
    return whole


def survival(method: str, target: Conditional, draft: Conditional, slots: int) -> list[Number]:
    """P(τ >= i) for i = 1..slots, by enumerating drafts and verdicts. Its sum is E[τ]."""
    reached: list[Number] = [0] * slots
    for drafted, weight in _drafts(draft, slots):
        for accepted, chance in enumerate(_accepted(method, target, draft, drafted)):
            for i in range(accepted):
                reached[i] += weight * chance
    return reached


def expected_ratio(method: str, target: Conditional, draft: Conditional, slots: int) -> list[Number]:
    """E[p_i] for i = 1..slots: what P(τ >= i) is for any number of slots from i on.

    p_i is min(p_{i-1} p(x_i)/q(x_i), 1) for block and the product of min(p(x_j)/q(x_j), 1) for standard.
    """
    mean: list[Number] = [0] * slots
    for drafted, weight in _drafts(draft, slots):
        for i, ratio in enumerate(_prefix_ratios(method, target, draft, drafted)):
            mean[i] += weight * ratio
    return mean


def _drafts(
    draft: Conditional, slots: int, tokens: Prefix = (), weight: Number = 1
) -> Iterator[tuple[Prefix, Number]]:
    """Every sequence of `slots` tokens that begins with `tokens`, with its probability if that is above 0."""
    if len(tokens) == slots:
        yield tokens, weight
        return
    for token, chance in enumerate(draft(tokens)):
        if chance:
            yield from _drafts(draft, slots, (*tokens, token), weight * chance)


def _ratios(target: Conditional, draft: Conditional, drafted: Prefix) -> list[Number]:
    """p(x_i)/q(x_i) of each slot."""
    found = []
    for i, token in enumerate(drafted):
        weight = draft(drafted[:i])[token]
        if not weight:
            raise ValueError(f"the draft gives token {token} no weight after {drafted[:i]}")
        found.append(target(drafted[:i])[token] / weight)
    return found


def _prefix_ratios(method: str, target: Conditional, draft: Conditional, drafted: Prefix) -> list[Number]:
    """p_i of each slot, the probability that a step of i slots would accept them all."""
    if method not in METHODS:
        raise ValueError(f"{method} is no method of verification: {' or '.join(METHODS)}")
    found, now = [], 1
    for ratio in _ratios(target, draft, drafted):
        now = min(now * ratio, 1) if method == "block" else now * min(ratio, 1)
        found.append(now)
    return found


def _chances(method: str, target: Conditional, draft: Conditional, drafted: Prefix) -> list[Number]:
    """h_i of each slot under block: R_i / (R_i + 1 - p_i), and p_γ for the last."""
    ratios = _prefix_ratios(method, target, draft, drafted)
    found = []
    for i, ratio in enumerate(ratios[:-1], 1):
        over = sum(_residual(target, draft, drafted[:i], ratio))
        # A prefix that the target likes as much as the draft is accepted: there R may be 0 as well.
        found.append(over / (over + 1 - ratio) if ratio < 1 else 1)
    return found + ratios[-1:]


def _accepted(method: str, target: Conditional, draft: Conditional, drafted: Prefix) -> list[Number]:
    """P(τ = i | drafted) for i = 0..γ."""
    if method == "standard":
        reached = [1, *_prefix_ratios(method, target, draft, drafted), 0]
        return [reached[i] - reached[i + 1] for i in range(len(drafted) + 1)]
    found, none_later = [], 1
    for chance in reversed(_chances(method, target, draft, drafted)):
        found.append(none_later * chance)
        none_later *= 1 - chance
    return [none_later, *reversed(found)]


def _next(
    method: str, target: Conditional, draft: Conditional, drafted: Prefix, accepted: int
) -> Sequence[Number]:
    """Weights of the token after the accepted ones."""
    prefix = drafted[:accepted]
    if accepted == len(drafted):
        return target(prefix)
    whole = not accepted or method == "standard"
    ratio = 1 if whole else _prefix_ratios(method, target, draft, prefix)[-1]
    weights = _residual(target, draft, prefix, ratio)
    # Only rounding can leave nothing where something was rejected.
    return weights if any(weights) else target(prefix)


def _residual(target: Conditional, draft: Conditional, prefix: Prefix, ratio: Number) -> list[Number]:
    """max(ratio p(x) - q(x), 0) of each token x after `prefix`."""
    return [max(ratio * p - q, 0) for p, q in zip(target(prefix), draft(prefix), strict=True)]


def slot(acceptance: Number, outright: Number = OUTRIGHT) -> tuple[list[Number], list[Number]]:
    """The model: target and draft over three tokens, which standard verification accepts with `acceptance`.

    The first token is one that the draft gives too much weight, the second one that it gives too little,
    by the same factor; the third the target never says. `outright` is the third's share of rejections.
    That, and that both distributions sum to 1, leaves nothing to choose.
    """
    wrong = outright * (1 - acceptance)
    doubtful = (1 - outright) * (1 - acceptance)
    factor = acceptance / (1 + doubtful)  # p/q of the first token, q/p of the second
    if not doubtful or not acceptance:
        return [0, 1, 0], [0 * acceptance, 1 - wrong, wrong] if acceptance else [1 - wrong, 0, wrong]
    over = doubtful / (1 - factor)
    under = 1 - wrong - over
    return [over * factor, under / factor, 0 * wrong], [over, under, wrong]


def block_survival(standard: Sequence[float], outright: float = OUTRIGHT) -> tuple[float, ...]:
    """Survival by slot under block verification where under standard it is `standard`.

    Slots are independent given their acceptance, each as `slot` has it. Between `standard` and what
    enumeration gives, to within 5e-4 of the latter: a prefix's ratio is kept on a grid, its mean exactly,
    and spreading it out only loses acceptance.
    """
    found: list[float] = []
    before = 1.0
    state = _Ratios()
    for now in standard:
        state = state.after(now / before if before > 0 else 0.0, outright)
        found.append(min(max(state.mean, now), *found[-1:], 1.0))
        before = now
    return tuple(found)


def standard_survival(block: Sequence[float], outright: float = OUTRIGHT) -> tuple[float, ...]:
    """Survival by slot under standard verification where under block it is `block`: the inverse."""
    found, reached = [], 1.0
    state = _Ratios()
    for now in block:
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if state.after(middle, outright).mean < now else (low, middle)
        state = state.after(high, outright)
        reached *= high
        found.append(reached)
    return tuple(found)


class _Ratios:
    """The distribution of p_i over drafts, as mass on a grid from 0 to 1."""

    grid: NDArray[np.float64] = np.linspace(0.0, 1.0, _CELLS + 1)

    def __init__(self, mass: NDArray[np.float64] | None = None) -> None:
        self.mass = np.eye(1, _CELLS + 1, _CELLS)[0] if mass is None else mass

    @property
    def mean(self) -> float:
        return float(self.mass @ self.grid)

    def after(self, acceptance: float, outright: float) -> _Ratios:
        """One slot later."""
        target, draft = slot(min(max(acceptance, 0.0), 1.0), outright)
        mass = np.zeros_like(self.mass)
        for p, q in zip(target, draft, strict=True):
            if not q:
                continue
            place = np.minimum(self.grid * (p / q), 1.0) * _CELLS
            below = np.minimum(place.astype(int), _CELLS - 1)
            above = self.mass * q * (place - below)
            mass += np.bincount(below, self.mass * q - above, _CELLS + 1)
            mass += np.bincount(below + 1, above, _CELLS + 1)
        return _Ratios(mass)
