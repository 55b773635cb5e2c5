"""A closed-loop load generator: exactly so many requests running, whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

POLL_SECONDS = 0.05  # how soon a changed number of clients is noticed
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between attempts that fail
GOLDEN = (5**0.5 - 1) / 2  # its multiples fill an interval more evenly than any other number's
_SHOWN = 200  # characters of an error
PATIENCE = 4  # failures in a row after which a client tries the other servers too


@dataclass(slots=True)
class Load:
    """What a load asks for and what it has done; change the settings while it runs.

    `clients` requests run at any time, client i at `urls[i % len(urls)]`, so that the replicas' batches
    differ by one at most. `traffic` goes out as each request's `user`, by which the simulated engine
    chooses its survival curve and which vLLM ignores; requests that run keep theirs, as they do their
    `temperature`, by which a real model's acceptance differs.
    """

    urls: Sequence[str]  # base URLs such as http://127.0.0.1:8000
    clients: int
    traffic: str = ""
    max_tokens: int = 256
    model: str = ""  # "": the server's own
    prompt_tokens: int = 32
    temperature: float = 0.0
    seed: int = 0  # of the prompts
    tokens: int = 0  # emitted, of completed requests
    requests: int = 0  # completed
    errors: int = 0
    last_error: str = ""


async def hold(load: Load, stop: asyncio.Event) -> None:
    """Keep `load.clients` requests running until `stop` is set, then drop those that run.

    Servers that refuse, fail or vanish are counted in `load.errors` and tried again, ever more slowly;
    nothing is raised for them.
    """
    chance = random.Random(load.seed)
    clients: list[asyncio.Task[None]] = []
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    timeout = httpx.Timeout(600.0, connect=5.0)
    # Proxies of the environment are not for servers on this machine or in this cluster.
    async with httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False) as http:
        try:
            while not stop.is_set():
                while len(clients) < load.clients:
                    clients.append(asyncio.create_task(_client(http, load, len(clients), chance)))
                while len(clients) > max(load.clients, 0):
                    clients.pop().cancel()
                for task in clients:
                    if task.done():
                        task.result()  # only a bug ends a client: let it be seen
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), POLL_SECONDS)
        finally:
            for task in clients:
                task.cancel()
            await asyncio.gather(*clients, return_exceptions=True)


async def _client(http: httpx.AsyncClient, load: Load, index: int, chance: random.Random) -> None:
    """One request after the other, for ever."""
    # The first is under way already, with part of its answer in its prompt: clients that start together must not
    # prefill together ever after, and contexts are as long from the first moment on as they will be. Any number of
    # clients is at stages that lie evenly.
    tokens, failures = 1 + int(load.max_tokens * ((index + 1) * GOLDEN % 1)), 0
    while True:
        # One that stays away loses its clients to the others, for a request each: not sooner, since a
        # server that is a moment late would then have too few for as long as those requests run.
        turn = index + max(failures - PATIENCE, 0)
        url = load.urls[turn % len(load.urls)]
        if await _request(http, load, url, tokens, chance):
            tokens, failures = load.max_tokens, 0
        else:
            pause = min(FIRST_PAUSE * 2**failures, LONGEST_PAUSE)
            failures = min(failures + 1, 30)
            await asyncio.sleep(pause * chance.uniform(0.5, 1.0))


async def _request(http: httpx.AsyncClient, load: Load, url: str, tokens: int, chance: random.Random) -> bool:
    prompt = load.prompt_tokens + max(load.max_tokens - tokens, 0)
    body = {
        # Token ids: they need no tokenizer, and random ones no prefix cache can answer.
        "prompt": [chance.randrange(10, 1000) for _ in range(prompt)],
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": load.temperature,
        **({"model": load.model} if load.model else {}),
        **({"user": load.traffic} if load.traffic else {}),
    }
    try:
        response = await http.post(f"{url}/v1/completions", json=body)
        response.raise_for_status()
        emitted = int(response.json()["usage"]["completion_tokens"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as e:
        load.errors += 1
        load.last_error = f"{url}: {_words(e)}"
        return False
    load.tokens += emitted
    load.requests += 1
    return True


def _words(error: Exception) -> str:
    """One line; of a server that refuses, its own words."""
    text = str(error) or type(error).__name__
    if isinstance(error, httpx.HTTPStatusError):
        text = f"{error.response.status_code} {error.response.text}"
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
