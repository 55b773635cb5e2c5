"""The OpenAI side of the simulated server, over HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from specpilot_engine.sim.arguments import VERSION, Arguments
from specpilot_engine.sim.counters import Counters
from specpilot_engine.sim.engine import Request
from specpilot_engine.sim.openai import CHAT, COMPLETION, Answer, ApiError, bad, read_ask
from specpilot_engine.sim.runner import Runner
from specpilot_engine.sim.truth import Truth


@dataclass
class Phase:
    """Whether the server answers: not before it has started nor once it is stopping."""

    ready: bool = False
    why: str = "the engine is starting"


class Api:
    """Routes and handlers; `application` is what aiohttp runs."""

    def __init__(
        self,
        arguments: Arguments,
        truth: Truth,
        runner: Runner,
        counters: Counters,
        metrics: CollectorRegistry,
    ) -> None:
        self.phase = Phase()
        self._arguments, self._truth, self._runner = arguments, truth, runner
        self._counters, self._metrics = counters, metrics
        self._started = int(time.time())

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guard], client_max_size=64 * 2**20)
        app.router.add_get("/health", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_get("/metrics", self._scrape)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            if not self.phase.ready:
                raise ApiError(503, "ServiceUnavailable", self.phase.why)
            return await handler(request)
        except ApiError as e:
            return web.json_response(e.body, status=e.status)

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": VERSION})

    async def _scrape(self, _: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._metrics), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def _models(self, _: web.Request) -> web.Response:
        a = self._arguments
        cards = [
            {
                "id": name,
                "object": "model",
                "created": self._started,
                "owned_by": "vllm",
                "root": a.model,
                "parent": None,
                "max_model_len": a.max_model_len,
            }
            for name in a.served_names
        ]
        return web.json_response({"object": "list", "data": cards})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, COMPLETION)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, CHAT)

    async def _generate(self, request: web.Request, kind: str) -> web.StreamResponse:
        ask = read_ask(await _json(request), kind, self._arguments)
        chunks: asyncio.Queue[tuple[int, bool]] = asyncio.Queue()
        whole: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        # A streaming client wakes at every step, any other only at its last one.
        def deliver(tokens: int, finished: bool) -> None:
            if ask.stream:
                chunks.put_nowait((tokens, finished))
            elif finished and not whole.done():
                whole.set_result(None)

        answer = Answer(ask)
        work = Request(
            answer.id,
            ask.prompt_tokens,
            ask.max_tokens,
            self._truth.survival(ask.traffic, ask.temperature),
            asyncio.get_running_loop().time(),
            deliver,
        )
        self._runner.submit(work)
        try:
            if ask.stream:
                return await _stream(request, answer, chunks)
            await whole
            return web.json_response(answer.complete())
        finally:
            # Without effect on a finished request; one whose client went away frees its place.
            if work.emitted < work.max_tokens:
                self._runner.engine.abort(work)
                self._counters.finished["abort"] += 1


async def _stream(
    request: web.Request, answer: Answer, chunks: asyncio.Queue[tuple[int, bool]]
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)

    async def send(event: dict[str, Any]) -> None:
        await response.write(b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n")

    if opening := answer.opening():
        await send(opening)
    finished = False
    while not finished:
        tokens, finished = await chunks.get()
        await send(answer.chunk(tokens, finished))
    if answer.ask.usage_at_end:
        await send(answer.closing())
    await response.write(b"data: [DONE]\n\n")
    return response


async def _json(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except ValueError:
        raise bad("The body is not JSON.", "body") from None
    if not isinstance(body, dict):
        raise bad("The body is not a JSON object.", "body")
    return body
