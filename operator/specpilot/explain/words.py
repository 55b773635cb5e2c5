"""What the table and the page both say, as sentences."""

from __future__ import annotations

from specpilot.decide.explain import Row
from specpilot.decide.schedule import in_words
from specpilot.explain.block import Drafts
from specpilot.explain.subject import Explanation

_LEGEND = (
    ("running", "requests in a step; below it the share of time the engines ran that many"),
    ("L", "accepted length: tokens a request and step, 1 + survival of the drafted slots"),
    ("C", "step time; goodput is running × L / C, and the choice goes by it"),
    (
        "slots",
        "the marginal rule, local only: the last slots pay where their survival (left) is above"
        " (C' − C) × L / C (right)",
    ),
)
_BARRED = {
    "no room": "over the token budget of a step",
    "no graph": "no CUDA graph was captured for that many tokens, so it is not considered",
    "too slow": "misses the ceiling on inter-token latency while another depth meets it",
}


def legend(it: Explanation) -> list[tuple[str, str]]:
    """What the words of the table mean; of those that bar a depth, the ones that are in it."""
    used = {verdict(it, row).partition(" (")[0] for row in it.rows}
    return [*_LEGEND, *((word, meaning) for word, meaning in _BARRED.items() if word in used)]


def verdict(it: Explanation, row: Row) -> str:
    """What choosing this depth would give, against the one in force."""
    if row.chosen:
        return "in force" if it.subject.schedule is not None else "best"
    change = row.goodput / it.in_force(row.batch).goodput - 1
    if not row.allowed:
        return f"{it.subject.why(row.tokens, row.batch)} ({change:+.1%})"
    if not it.may_run(row):
        return f"too slow ({change:+.1%})"
    return f"{change:+.1%} ± {row.uncertainty:.1%}"


def margin(row: Row) -> str:
    """The two sides of the marginal rule: "0.43 > 0.21" where the last slots pay."""
    if row.gained is None or row.needed is None:
        return ""
    return f"{row.gained:.2f} {'>' if row.pays else '<'} {row.needed:.2f}"


def load(it: Explanation) -> str:
    """Where the engines spend their time: "16 running 93% of the time, 17 7%; context 245 tokens"."""
    if not it.seen:
        return ""
    busiest = sorted(range(len(it.weights)), key=lambda b: -it.weights[b])[:3]
    parts = [f"{b + 1} running {it.weights[b]:.0%}" for b in busiest if it.weights[b] >= 0.05]
    if not parts:
        mean = float(it.weights @ range(1, len(it.weights) + 1))
        parts = [f"{mean:.0f} running on average"]
    parts[0] += " of the time" if parts[0].endswith("%") else ""
    context = it.subject.memory.load.context
    return ", ".join(parts) + (f"; context {context:,.0f} tokens" if context else "")


def step_times(it: Explanation) -> str:
    """At which context C is meant, where the profile leaves a choice and the load does not make it."""
    lengths = sorted({point.context for point in it.subject.points})
    if len(lengths) < 2 or it.subject.memory.load.context is not None:
        return ""
    others = ", ".join(f"{length:,}" for length in lengths[:-1])
    return f"at {lengths[-1]:,} tokens of context, the longest measured (besides {others})"


def head(it: Explanation) -> list[tuple[str, str]]:
    """(what, how it stands): the schedule in force, the best one known, the load, and what is known else."""
    found = []
    if (schedule := it.subject.schedule) is not None:
        found.append(("in force", f"{in_words(schedule.steps)} (generation {schedule.generation})"))
    best = in_words(it.best_steps)
    if it.gain is not None:
        gain, noise = it.gain
        better = f"{gain:+.1%} ± {noise:.1%} goodput at the load" if gain > 5e-4 else "the same at the load"
        best += f": {better}"
        if it.subject.minimum_gain is not None and gain > 5e-4:
            best += (
                f"; a change takes {it.subject.minimum_gain:.1%} beyond that uncertainty; where a trial can prove"
                " it, it need only be likely"
            )
    found.append(("best known", best))
    if it.undone:
        changes = (f"depth {u.new} instead of {u.old} at {u.batch:.0f} requests" for u in it.undone)
        found.append(("undone", f"{', '.join(changes)}: not tried again until traffic or step times change"))
    if said := load(it):
        found.append(("load", said))
    if said := step_times(it):
        found.append(("step times", said))
    if schedule is not None and (trial := schedule.trial) is not None:
        rival = f"alternates with {in_words(trial.against)} until it is told which gives more"
        found.append(("on trial", f"{rival}, {trial.pairs} pairs of slices at most"))
    if schedule is not None and (x := schedule.exploration).price > 0:
        found.append(("exploring", f"depth {x.tokens}, for at most {x.price:.2%} of goodput"))
    return [*found, *it.subject.facts, ("block verification", block(it))]


def block(it: Explanation) -> str:
    """What block verification is worth, always marked as a prediction."""
    found = it.block
    kind = found.verification
    if kind.synthetic:
        return "nothing can be said: acceptance is synthetic"
    if not kind.may_gain:
        idle = "in force, but worth nothing here" if kind.block else "worth nothing here"
        greedy = kind.drafts is Drafts.GREEDY
        hint = (
            "; with draftSampling Probabilistic it could, but acceptance would change too" if greedy else ""
        )
        return f"{idle}: of {kind.drafts} drafts it accepts exactly as many as standard verification{hint}"
    deepest = it.subject.depths[-1]
    lengths = f"L at depth {deepest} {found.standard[deepest]:.2f} → {found.block[deepest]:.2f}"
    worth = "in force; a model puts its worth at" if kind.block else "a model predicts"
    when = " if drafts are sampled" if kind.drafts is Drafts.UNKNOWN else ""
    where = "goodput at the load" if it.seen else "goodput"
    return (
        f"{worth} {found.gain:+.1%} {where}{when} ({lengths}; between 0 and {found.most:+.1%} by how the"
        " models disagree); nothing for requests at temperature 0"
    )
