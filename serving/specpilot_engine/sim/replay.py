"""What the simulated engine would have emitted at each fixed depth under a given load, without waiting.

`python -m specpilot_engine.sim.replay < LOAD`, where LOAD is JSON such as
{"replicas": 2, "depths": [0, 1, 3, 7], "max_tokens": 256, "prompt_tokens": 32,
 "phases": [{"seconds": 20, "clients": 8, "traffic": "code"}]}, prints
{"depths": {"0": {"phases": [tokens of each phase], "seconds": [tokens of each second]}, …}}. The world is that of ENV_SIM. Same engine, same
acceptance, same noise as the server; its clients need no time between two requests, and begin at random places of an
answer.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
from dataclasses import asdict, dataclass
from itertools import count

from specpilot_engine.protocol import ENV_SIM
from specpilot_engine.sim.arguments import Speculation
from specpilot_engine.sim.engine import Engine, Request
from specpilot_engine.sim.truth import Truth, TruthError, read_truth


@dataclass(frozen=True, slots=True)
class Phase:
    """So many clients over all replicas, of one kind, for so long."""

    seconds: float
    clients: int
    traffic: str


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of the engines: client i belongs to replica i modulo `replicas`."""

    phases: tuple[Phase, ...]
    replicas: int = 1
    max_tokens: int = 256
    prompt_tokens: int = 32
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192

    @property
    def seconds(self) -> float:
        return sum(p.seconds for p in self.phases)


@dataclass(frozen=True, slots=True)
class Emitted:
    """Tokens of all replicas, by phase and by second; the last second may be a part of one."""

    phases: tuple[float, ...]
    seconds: tuple[float, ...]


def replay(truth: Truth, load: Load, depth: int) -> Emitted:
    """What is emitted under `load` while drafting `depth` tokens throughout."""
    phases = [0.0] * len(load.phases)
    seconds = [0.0] * math.ceil(load.seconds)
    for replica in range(load.replicas):
        for phase, at, tokens in _Replica(truth, load, depth, replica).run():
            phases[phase] += tokens
            # A step that ends just after the load belongs to its last second.
            seconds[min(int(at), len(seconds) - 1)] += tokens
    return Emitted(tuple(phases), tuple(seconds))


class _Replica:
    """One engine and the closed loop of its clients."""

    def __init__(self, truth: Truth, load: Load, depth: int, replica: int) -> None:
        deepest = max(truth.depths)
        speculation = Speculation(deepest, ((1, load.max_num_seqs, depth),)) if depth else None
        self._engine = Engine(truth, load.max_num_seqs, load.max_num_batched_tokens, speculation)
        self._truth, self._load, self._replica = truth, load, replica
        self._random = random.Random(replica)
        self._ids = count()
        self._clients: list[Request] = []

    def run(self) -> list[tuple[int, float, float]]:
        """(phase, when it ended, tokens) of each step."""
        now, end, steps = 0.0, 0.0, []
        for index, phase in enumerate(self._load.phases):
            end += phase.seconds
            survival = self._truth.survival(phase.traffic)
            self._resize(max(0, -(-(phase.clients - self._replica) // self._load.replicas)), survival, now)
            while now < end and self._clients:
                step = self._engine.begin(now)
                now += step.seconds
                self._engine.finish(step, now)
                steps.append((index, now, float(sum(step.emitted) + len(step.first_tokens))))
                for i, request in enumerate(self._clients):
                    if request.is_finished():
                        self._clients[i] = self._request(self._load.max_tokens, survival, now)
            now = max(now, end)
        return steps

    def _resize(self, clients: int, survival: tuple[float, ...], now: float) -> None:
        while len(self._clients) > clients:
            self._engine.abort(self._clients.pop())
        while len(self._clients) < clients:
            # Clients that start together must not prefill together ever after.
            tokens = self._random.randint(1, self._load.max_tokens)
            self._clients.append(self._request(tokens, survival, now))

    def _request(self, tokens: int, survival: tuple[float, ...], now: float) -> Request:
        name, prompt = str(next(self._ids)), self._load.prompt_tokens
        request = Request(name, prompt, tokens, survival, now, lambda _tokens, _finished: None)
        self._engine.submit(request)
        return request


def main(text: str) -> str:
    """JSON in, JSON out. Raises TruthError, or KeyError, TypeError and ValueError for a malformed load."""
    doc = json.loads(text)
    truth = read_truth(os.environ.get(ENV_SIM))
    phases = tuple(Phase(float(p["seconds"]), int(p["clients"]), str(p["traffic"])) for p in doc["phases"])
    limits = ("replicas", "max_tokens", "prompt_tokens", "max_num_seqs", "max_num_batched_tokens")
    load = Load(phases, **{name: int(doc[name]) for name in limits if name in doc})
    return json.dumps({"depths": {str(int(k)): asdict(replay(truth, load, int(k))) for k in doc["depths"]}})


if __name__ == "__main__":
    try:
        print(main(sys.stdin.read()))
    except (TruthError, KeyError, TypeError, ValueError) as e:
        sys.exit(f"the load or {ENV_SIM} cannot be read ({e!r}): see this module's text for their form")
