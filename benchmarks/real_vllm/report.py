"""What a run says: specpilot against fixed depths, paired over repeats. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from benchmarks.real_vllm.kept import Segment
from benchmarks.real_vllm.scenario import ARMS, DEEPEST, FIXED, PRODUCT, Key, Plan
from scipy.stats import t as student

Place = tuple[str, int]  # draft, phase
Goodput = Mapping[Place, float]  # of one arm in one repeat


@dataclass(frozen=True, slots=True)
class Estimate:
    """Mean over repeats with its 95% interval, and the extremes; no interval of fewer than two."""

    mean: float
    low: float | None
    high: float | None
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class PhaseResult:
    """Tokens per second in one phase: mean and standard deviation over repeats by arm.

    `best` is the fixed depth that emitted most, `share` what specpilot emitted of that, `at_best` the share of
    its time that it spent at that depth.
    """

    draft: str
    phase: str
    goodput: Mapping[str, tuple[float, float]]
    best: str
    share: float
    at_best: float


@dataclass(frozen=True, slots=True)
class Result:
    """Shares of complete repeats; all phases last equally long.

    `against_best` is the difference to the best single fixed depth found in hindsight, by tokens over the
    whole scenario, `against_best_alike` the same with the geometric mean over phases as the measure, in which
    a phase with one client counts as much as one with many. `of_phase_best` is the share of what the best
    fixed depth of each phase, found in hindsight over all repeats, emitted. `over_deepest` is the
    ratio to the deepest.
    """

    repeats: int
    left_out: int  # repeats that are not complete
    best: str
    against_best: Estimate
    best_alike: str
    against_best_alike: Estimate
    of_phase_best: Estimate
    over_deepest: Estimate
    totals: Mapping[str, float]  # mean tokens per second by arm
    phases: Sequence[PhaseResult]
    changes: float  # of depth by specpilot in a repeat

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def result(plan: Plan, segments: Mapping[Key, Segment]) -> Result | None:
    """None while no repeat is complete."""
    begun = sorted({key.repeat for key in segments})
    places = [(draft, number) for draft in plan.drafts for number in range(len(plan.phases))]
    complete = [r for r in begun if all(Key(r, *place, arm) in segments for place in places for arm in ARMS)]
    if not complete:
        return None
    runs: dict[str, list[Goodput]] = {
        arm: [{place: segments[Key(r, *place, arm)].goodput for place in places} for r in complete]
        for arm in ARMS
    }
    spent = {place: [segments[Key(r, *place, PRODUCT)].depths for r in complete] for place in places}
    phases = [_phase(plan, place, runs, spent[place]) for place in places]
    best_of = {place: found.best for place, found in zip(places, phases, strict=True)}
    in_hindsight = [{place: runs[best_of[place]][n][place] for place in places} for n in range(len(complete))]
    best, best_alike = _best(runs, total), _best(runs, alike)
    product = runs[PRODUCT]
    moves = [
        sum(c["moved"] for place in places for c in segments[Key(r, *place, PRODUCT)].changes)
        for r in complete
    ]
    return Result(
        repeats=len(complete),
        left_out=len(begun) - len(complete),
        best=best,
        against_best=_ratios(product, runs[best], total, -1.0),
        best_alike=best_alike,
        against_best_alike=_ratios(product, runs[best_alike], alike, -1.0),
        of_phase_best=_ratios(product, in_hindsight, total),
        over_deepest=_ratios(product, runs[DEEPEST], total),
        totals={arm: fmean(map(total, runs[arm])) / len(places) for arm in ARMS},
        phases=phases,
        changes=fmean(moves),
    )


def total(goodput: Goodput) -> float:
    """Tokens of the whole scenario, per second of one phase."""
    return sum(goodput.values())


def alike(goodput: Goodput) -> float:
    """Geometric mean over phases."""
    return math.exp(fmean(math.log(max(value, 1e-9)) for value in goodput.values()))


def _best(runs: Mapping[str, Sequence[Goodput]], measure: Callable[[Goodput], float]) -> str:
    return max(FIXED, key=lambda arm: sum(map(measure, runs[arm])))


def _ratios(
    one: Iterable[Goodput],
    other: Iterable[Goodput],
    measure: Callable[[Goodput], float],
    plus: float = 0.0,
) -> Estimate:
    """Of `measure`, one over the other in each repeat."""
    return estimate([measure(a) / measure(b) + plus for a, b in zip(one, other, strict=True)])


def _phase(
    plan: Plan,
    place: Place,
    runs: Mapping[str, Sequence[Goodput]],
    spent: Sequence[Mapping[str, float]],
) -> PhaseResult:
    values = {arm: [run[place] for run in runs[arm]] for arm in ARMS}
    means = {arm: fmean(v) for arm, v in values.items()}
    best = max(FIXED, key=lambda arm: means[arm])
    return PhaseResult(
        draft=place[0],
        phase=plan.phases[place[1]],
        goodput={arm: (means[arm], stdev(v) if len(v) > 1 else 0.0) for arm, v in values.items()},
        best=best,
        share=means[PRODUCT] / means[best],
        at_best=fmean(depths.get(str(FIXED[best]), 0.0) for depths in spent),
    )


def estimate(values: Sequence[float]) -> Estimate:
    """Student's interval for the mean of independent values."""
    mean, least, most = fmean(values), min(values), max(values)
    if len(values) < 2:
        return Estimate(mean, None, None, least, most)
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half, least, most)
