"""A proxy before the API server that can be slow, lose answers, cut connections and hold watches back."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import yaml
from aiohttp import web
from tests.setup.answering import answering
from tests.setup.cluster import Cluster

HOP = ("host", "content-length", "connection", "transfer-encoding")
Fault = Callable[[str, str], str]


class ApiProxy:
    """`fault` says of a request, by method and path, what becomes of it, unless it is "": "cut" it does not
    arrive; "lost" it is done, and its answer does not arrive. All that arrives takes `delay` seconds; while
    `held` watches tell nothing. `answers` are those that were successful, lost ones too."""

    def __init__(self, upstream: str, trust: ssl.SSLContext) -> None:
        self.fault: Fault | None = None
        self.delay = 0.0
        self.held = False
        self.answers: list[tuple[str, str, dict[str, Any]]] = []
        self.lost = 0
        self.url = ""
        self._upstream, self._trust = upstream, trust

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._answer)
        connector = aiohttp.TCPConnector(ssl=self._trust, limit=0)
        patience = aiohttp.ClientTimeout(total=None)
        session = aiohttp.ClientSession(connector=connector, timeout=patience)
        async with session as self._session, answering(app) as self.url:
            ready.set()
            await stop.wait()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        fault = self.fault(request.method, request.path) if self.fault else ""
        await asyncio.sleep(self.delay)
        if fault == "cut":
            return await self._cut(request)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP}
        url, body = self._upstream + str(request.rel_url), await request.read()
        async with self._session.request(request.method, url, data=body or None, headers=headers) as answer:
            kind = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            if request.query.get("watch") and answer.status == 200:
                told = web.StreamResponse(headers=kind)
                await told.prepare(request)
                async for part in answer.content.iter_any():
                    while self.held:
                        await asyncio.sleep(0.05)
                    await told.write(part)
                return told
            text = await answer.read()
        if answer.status < 300 and request.method != "GET":
            self.answers.append((request.method, request.path, json.loads(text)))
        if fault == "lost":
            self.lost += 1
            return await self._cut(request)
        return web.Response(status=answer.status, body=text, headers=kind)

    async def _cut(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


@contextmanager
def api_proxy(cluster: Cluster) -> Iterator[ApiProxy]:
    """A proxy before a cluster's API server; those who come through it say themselves who they are."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = base64.b64decode(config["certificate-authority-data"]).decode()
    proxy = ApiProxy(config["server"], ssl.create_default_context(cadata=authority))
    loop, stop, ready = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    serving: Coroutine[Any, Any, None] = proxy.serve(ready, stop)
    thread = threading.Thread(target=loop.run_until_complete, args=(serving,), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
