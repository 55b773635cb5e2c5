"""A real Prometheus behind a proxy that can break in every way."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.setup.cluster import Cluster
from tests.setup.prometheus import running

from specpilot.local.process import free_ports

MODES = ("gone", "error page", "login page", "empty", "NaN", "silent")
SILENCE = 30.0  # seconds, longer than anybody waits


class Proxy:
    """Stands before a Prometheus; `mode` is "pass" or one of MODES."""

    def __init__(self, upstream: str, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._upstream, self._port = upstream, port
        self._mode = "pass"
        self._server: ThreadingHTTPServer | None = None
        self._closing = threading.Event()
        self._listen()

    @property
    def mode(self) -> str:
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        if mode == "gone":
            self.close()
        elif self._mode == "gone":
            self._listen()
        self._mode = mode

    def close(self) -> None:
        if self._server is not None:
            self._closing.set()
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _listen(self) -> None:
        proxy = self
        self._closing.clear()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

            def _answer(self, body: bytes | None) -> None:
                status, content, text = proxy.answer(self.path, body, dict(self.headers))
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", content)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)
                except OSError:
                    pass  # whoever asked has gone

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, str, bytes]:
        """(status, content type, body) for a request, as the mode has it."""
        mode = self._mode
        if mode == "silent":
            self._closing.wait(SILENCE)
            return 504, "text/plain", b""
        if mode == "error page":
            return 500, "text/html", b"<html><body><h1>Internal error</h1></body></html>"
        if mode == "login page":
            return 200, "text/html", b"<html><body><form>Sign in</form></body></html>"
        kept = {
            k: v for k, v in headers.items() if k.lower() not in ("host", "content-length", "accept-encoding")
        }
        request = urllib.request.Request(self._upstream + path, data=body, headers=kept)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                text, content = answer.read(), answer.headers.get("Content-Type", "application/json")
        except urllib.error.HTTPError as e:
            return e.code, "application/json", e.read()
        if mode == "empty":
            doc = json.loads(text)
            doc["data"]["result"] = []
            text = json.dumps(doc).encode()
        elif mode == "NaN":
            doc = json.loads(text)
            for series in doc["data"]["result"]:
                for sample in [*series.get("values", []), *([series["value"]] if "value" in series else [])]:
                    sample[1] = "NaN"
            text = json.dumps(doc).encode()
        return 200, content, text


@contextmanager
def prometheus(cluster: Cluster, folder: Path) -> Iterator[Proxy]:
    """A Prometheus that scrapes the pods of specpilot in the cluster each second, behind a Proxy."""
    with running(cluster, folder, "1s") as real:
        proxy = Proxy(real.url, free_ports(1)[0])
        try:
            yield proxy
        finally:
            proxy.close()
