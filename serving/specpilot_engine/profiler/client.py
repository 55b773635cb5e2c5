"""The engine as the profiler sees it: its OpenAI API, its metrics, and the engine package's port."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import Sequence
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from specpilot_engine.protocol import STATE_PATH, STEPS_PATH, StepSample

REPLY_SECONDS = 10.0
HEALTH_SECONDS = 1.0  # between two looks at an engine that is starting
# Low ids are plain text in every tokenizer; the first few are often control tokens.
TOKEN_IDS = (16, 1000)
# asyncio's own TimeoutError is the built-in one only since Python 3.11.
UNREACHABLE = (aiohttp.ClientError, asyncio.TimeoutError, OSError)
RUNNING = re.compile(r"^vllm:num_requests_running(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


class EngineGone(Exception):
    """The engine does not answer."""


class Refused(Exception):
    """The engine answered that it will not do this; the message is its own."""


class EngineClient:
    """`url` is the OpenAI API; the engine package's `port` is on the same host."""

    def __init__(self, url: str, port: int) -> None:
        self._url = url.rstrip("/")
        host = urlsplit(self._url).hostname or "127.0.0.1"
        self._own = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        key = os.environ.get("VLLM_API_KEY", "")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=aiohttp.ClientTimeout(total=REPLY_SECONDS),
        )
        self.model = ""
        self.max_model_len = 0  # 0: the engine does not say

    async def __aenter__(self) -> EngineClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def healthy(self) -> bool:
        """Whether the engine is ready to serve."""
        try:
            async with self._session.get(f"{self._url}/health") as reply:
                return reply.status == 200
        except UNREACHABLE:
            return False

    async def describe(self) -> None:
        """Learn the served model's name and longest context."""
        doc = json.loads(await self._get(f"{self._url}/v1/models"))
        model = doc["data"][0]
        self.model, self.max_model_len = str(model["id"]), int(model.get("max_model_len") or 0)

    async def state(self) -> dict[str, Any]:
        """The state document."""
        doc: dict[str, Any] = json.loads(await self._get(self._own + STATE_PATH))
        return doc

    async def steps(self, since: int) -> list[StepSample]:
        """Clean steps later than sequence number `since`."""
        doc = json.loads(await self._get(f"{self._own}{STEPS_PATH}?since={since}"))
        return [StepSample(int(s[0]), int(s[1]), int(s[2]), float(s[3]), float(s[4])) for s in doc["steps"]]

    async def running(self) -> int:
        """How many requests the engine runs, by its own metrics (0 when it does not say)."""
        found = RUNNING.findall(await self._get(f"{self._url}/metrics"))
        return int(sum(float(x) for x in found))

    async def complete(self, prompt: Sequence[int], max_tokens: int) -> None:
        """Run one request to its end. Raises Refused or EngineGone."""
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "ignore_eos": True,
            "temperature": 0.0,
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REPLY_SECONDS)
        try:
            async with self._session.post(f"{self._url}/v1/completions", json=body, timeout=timeout) as reply:
                text = await reply.text()
        except UNREACHABLE as e:
            raise EngineGone(f"a request was cut off: {e!r}") from None
        if reply.status >= 400:
            raise Refused(f"the engine refused a request ({reply.status}): {_message(text)}")

    async def _get(self, url: str) -> str:
        try:
            async with self._session.get(url) as reply:
                text = await reply.text()
        except UNREACHABLE as e:
            raise EngineGone(f"{url} does not answer: {e!r}") from None
        if reply.status >= 400:
            raise Refused(f"{url} answered {reply.status}: {_message(text)}")
        return text


class Held:
    """Exactly `batch` requests of `prompt` random tokens each, running until the block ends.

    Every prompt is new, so no prefix cache shortens it.
    """

    def __init__(self, client: EngineClient, batch: int, prompt: int, max_tokens: int) -> None:
        self._client = client
        self._sizes = (batch, prompt, max_tokens)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Held:
        batch, prompt, max_tokens = self._sizes
        for _ in range(batch):
            ids = random.choices(range(*TOKEN_IDS), k=prompt)
            self._tasks.append(asyncio.create_task(self._client.complete(ids, max_tokens)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def ended(self) -> bool:
        """Whether any request is over. Raises what ended it: Refused or EngineGone."""
        over = [task for task in self._tasks if task.done()]
        for task in over:
            error = task.exception()
            if error is not None:
                raise error
        return bool(over)


def _message(text: str) -> str:
    try:
        doc = json.loads(text)
        return str(doc.get("error", doc).get("message", text))
    except (ValueError, AttributeError):
        return text.strip()[:200]
