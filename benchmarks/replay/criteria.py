"""What the tuner must reach in replay, judged from what was played. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median

from benchmarks.replay.played import Seen

from specpilot.replay.registry import FIXED, PRODUCT

# As benchmarks/worlds/README.md has them.
STEADY = (
    "context-drift",
    "figure-3-steady",
    "flip-flop",
    "hopeless-drafter",
    "no-profile",
    "odd-first-slot",
    "wrong-context",
    "wrong-profile",
)
NO_PROFILE, WRONG_PROFILE, WRONG_CONTEXT, FLIP_FLOP = (
    "no-profile",
    "wrong-profile",
    "wrong-context",
    "flip-flop",
)
# Steady worlds that begin with nothing to go by, or with worse than that: each is held to a criterion of its own.
EXEMPT = {
    NO_PROFILE: "nothing is known of its step times at first",
    WRONG_PROFILE: "every point of its profile is wrong by a quarter, and the first minutes go into finding that out",
}
AFTER, WHOLE = 0.995, 0.99  # steady worlds: from five minutes on, and over the whole run
UNPROFILED, HEALED = 0.98, 0.98
BEHIND = 0.01  # of the best of all fixed depths and peers in any world
APART = 600.0  # seconds in which there may be one change between two depths within 1%
HOUR = 10.0  # processor seconds for a replayed hour

Runs = Mapping[str, Sequence[Seen]]  # by world


@dataclass(frozen=True, slots=True)
class Criterion:
    """`measured` says by how much, and where it was worst."""

    what: str
    goal: str
    measured: str
    met: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """Mean shares of one world, or over worlds. `fixed` is the best depth of each seed, known only in hindsight."""

    ours: float
    worst: float
    fixed: float | None = None
    peers: Mapping[str, float] = field(default_factory=dict)

    @property
    def peer(self) -> str | None:
        """The best of them by name."""
        return max(self.peers, key=lambda name: self.peers[name], default=None)

    @property
    def rival(self) -> float | None:
        """The best of fixed depths and peers."""
        return max([*self.peers.values(), *([] if self.fixed is None else [self.fixed])], default=None)


def standing(seen: Sequence[Seen]) -> Standing:
    """Of one world over its seeds."""
    ours = [one.shares[PRODUCT] for one in seen]
    names = [name for name in seen[0].shares if name != PRODUCT]
    fixed = [name for name in names if name.startswith(FIXED)]
    return Standing(
        fmean(ours),
        min(ours),
        fmean(max(one.shares[name] for name in fixed) for one in seen) if fixed else None,
        {name: fmean(one.shares[name] for one in seen) for name in names if name not in fixed},
    )


def overall(standings: Iterable[Standing]) -> Standing:
    """The mean over worlds: every world counts alike."""
    standings = list(standings)
    fixed = [one.fixed for one in standings if one.fixed is not None]
    return Standing(
        fmean(one.ours for one in standings),
        min(one.worst for one in standings),
        fmean(fixed) if fixed else None,
        {name: fmean(one.peers[name] for one in standings) for name in standings[0].peers},
    )


def judge(runs: Runs, flips: Sequence[Seen]) -> list[Criterion]:
    """Every criterion that `runs` and the seeds of flip-flop can be held to."""
    found = [*_shares(runs), *_rivals(runs), *_drifting(runs)]
    if flips:
        found.append(_flips(flips))
    return [*found, _speed(runs)]


def _shares(runs: Runs) -> Iterable[Criterion]:
    plain = {name: seen for name, seen in runs.items() if name in STEADY and name not in EXEMPT}
    groups = (
        ("steady worlds after the first five minutes", AFTER, 300, plain),
        ("steady worlds over the whole run", WHOLE, 0, plain),
        ("without a profile, over the whole run", UNPROFILED, 0, _only(runs, NO_PROFILE)),
        ("a wrong profile, after ten minutes", HEALED, 600, _only(runs, WRONG_PROFILE)),
        ("a profile of another context, after ten minutes", HEALED, 600, _only(runs, WRONG_CONTEXT)),
    )
    for what, goal, since, worlds in groups:
        shares = [
            (one.later[since] if since else one.shares[PRODUCT], one)
            for seen in worlds.values()
            for one in seen
        ]
        if shares:
            least, at = min(shares, key=lambda pair: pair[0])
            where = f"{at.world}, seed {at.seed}" if len(worlds) > 1 else f"seed {at.seed}"
            yield Criterion(what, f"≥ {goal:.1%} in every seed", f"{least:.2%} ({where})", least >= goal)


def _only(runs: Runs, world: str) -> Runs:
    return {world: runs[world]} if world in runs else {}


def _rivals(runs: Runs) -> Iterable[Criterion]:
    standings = {name: standing(seen) for name, seen in runs.items()}
    mean = overall(standings.values())
    if mean.peer is None or mean.fixed is None:
        return
    for what, theirs in (
        (f"the best peer, {mean.peer}", mean.peers[mean.peer]),
        ("the best fixed depth", mean.fixed),
    ):
        ahead = mean.ours - theirs
        yield Criterion(f"mean over worlds, against {what}", "ahead", _signed(ahead), ahead > 0)
    behind = {name: one.ours - one.rival for name, one in standings.items() if one.rival is not None}
    worst = min(behind, key=lambda name: behind[name])
    yield Criterion(
        "any world, against the best of peers and fixed depths there",
        f"≥ {_signed(-BEHIND)}",
        f"{_signed(behind[worst])} ({worst})",
        behind[worst] >= -BEHIND,
    )


def _signed(share: float) -> str:
    return f"{share:+.2%}".replace("-", "−")


def _drifting(runs: Runs) -> Iterable[Criterion]:
    means, single, phases = [], 0, 0
    for name, seen in runs.items():
        if name in STEADY:
            continue
        for index in range(len(seen[0].lost)):
            lost, may = fmean(one.lost[index] for one in seen), fmean(one.may[index] for one in seen)
            means.append((lost - may, lost, may, name, index))
            single += sum(one.lost[index] > one.may[index] for one in seen)
            phases += len(seen)
    if means:
        _, lost, may, name, index = max(means)
        over = sum(beyond > 0 for beyond, *_ in means)
        yield Criterion(
            "each phase of a drifting world, mean of its seeds",
            "lost ≤ 1% and two scrapes at the depth before",
            f"{over} of {len(means)} over (nearest or worst: {name}, phase {index + 1}, {lost:.2%} of {may:.2%});"
            f" of single seeds {single} of {phases}",
            not over,
        )


def _flips(seen: Sequence[Seen]) -> Criterion:
    flapped = [one.seed for one in seen if any(b - a < APART for a, b in pairwise(one.moves))]
    which = f" ({', '.join(map(str, flapped))})" if flapped else ""
    return Criterion(
        "two depths within 1% under noise: seeds with two changes within ten minutes",
        "none",
        f"{len(flapped)} of {len(seen)}{which}; {fmean(one.shares[PRODUCT] for one in seen):.2%} of the oracle",
        not flapped,
    )


def _speed(runs: Runs) -> Criterion:
    taken = {name: median(one.seconds for one in seen) for name, seen in runs.items()}
    slowest = max(taken, key=lambda name: taken[name])
    return Criterion(
        "processor time of a replayed hour, slowest world",
        f"≤ {HOUR:.0f} s",
        f"{taken[slowest]:.1f} s ({slowest})",
        taken[slowest] <= HOUR,
    )
