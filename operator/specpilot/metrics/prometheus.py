"""A Prometheus of the operator's configuration: one query per tick for the whole fleet.

The query is an instant query of a *range* selector. Its answer holds each sample with the time at
which it was scraped; an instant vector would come with the time of the query, and `timestamp()` drops
the series' names, so that it cannot be asked for many series at once.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from specpilot.estimate.counters import Counters
from specpilot.metrics.http import HEADER_VALUE, MetricsError, Problem, ask, json_object, unverified
from specpilot.metrics.parse import SERIES, Sample, to_counters
from specpilot.metrics.scrape import PodKey

LARGEST = 512 << 20  # bytes of an answer; a thousand pods' are a fifth of that
_HELP = "check its url in the operator's configuration and that it runs"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A Prometheus, or whatever speaks its HTTP API, as the operator's configuration lists it.

    `url` is what /api/v1/query is appended to. `token_file`, `ca_file` and `header_files` (by header) are
    read anew, so that they may rotate. `window` is how old a sample may be in seconds: more than two scrape intervals.
    """

    name: str
    url: str
    token_file: str | None = None
    ca_file: str | None = None
    insecure: bool = False
    timeout: float = 10.0
    window: int = 120
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # a tenant's, for example
    header_files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Series:
    """One series' newest sample."""

    labels: Mapping[str, str]
    at: float
    value: float


class Snapshot:
    """What one query answered, by pod."""

    def __init__(self, series: Iterable[Series]) -> None:
        self._by_pod: dict[PodKey, list[Series]] = {}
        for one in series:
            key = one.labels.get("namespace", ""), one.labels.get("pod", "")
            self._by_pod.setdefault(key, []).append(one)

    def counters(self, key: PodKey, life: str, labels: Mapping[str, str]) -> Counters | None:
        """Counters of a pod, from the series that have all of `labels`; None when there are none."""
        matching = [s for s in self._by_pod.get(key, ()) if labels.items() <= s.labels.items()]
        chosen = list(_once(_newest_scrapes(matching)))
        if not chosen:
            return None
        # The engine package's and vLLM's own are two scrapes. The package's is what step times and
        # acceptance come from, so its time is the time of the whole.
        ours = [s.at for s in chosen if s.labels["__name__"].startswith("specpilot_")]
        at = max(ours or (s.at for s in chosen))
        return to_counters(life, at, (Sample(s.labels["__name__"], s.labels, s.value) for s in chosen))


def _newest_scrapes(series: list[Series]) -> list[Series]:
    """Of each scraped target only what its last scrape had: the rest belongs to series that ended."""
    last: dict[tuple[str, str], float] = {}
    for s in series:
        last[_target(s)] = max(s.at, last.get(_target(s), 0.0))
    return [s for s in series if s.at == last[_target(s)]]


def _once(series: list[Series]) -> Iterable[Series]:
    """Each series once, where two scrape configurations, or two replicas of Prometheus, have the same."""
    distinct: dict[tuple[str, ...], Series] = {}
    for s in sorted(series, key=lambda s: (s.at, _target(s))):
        distinct[tuple(s.labels.get(n, "") for n in ("__name__", "engine", "k", "batch", "position"))] = s
    return distinct.values()


def _target(s: Series) -> tuple[str, str]:
    return s.labels.get("job", ""), s.labels.get("instance", "")


class Prometheus:
    """Asks one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._who = f"Prometheus {endpoint.name}"
        self._client: httpx.AsyncClient | None = None

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def read(self, namespaces: Iterable[str]) -> Snapshot:
        """The newest samples of all pods in `namespaces`.

        Raises MetricsError for anything but a complete answer with at least one series in it.
        """
        names = "|".join(SERIES)
        where = "|".join(sorted(set(namespaces)))
        query = f'{{__name__=~"{names}",namespace=~"{where}",pod!=""}}[{self.endpoint.window}s]'
        doc = await self._post(query)
        try:
            if doc["status"] != "success":
                raise MetricsError(
                    Problem.FAILED,
                    f"{self._who} could not run the query ({doc.get('error', 'no reason given')}): see its log",
                )
            series = [_series(row) for row in doc["data"]["result"]]
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as e:
            raise MetricsError(
                Problem.MALFORMED,
                f"{self._who} answered a query with something that is not its JSON ({e!r}): check that"
                " url in the operator's configuration is Prometheus's own, with its path prefix if it has one",
            ) from None
        if not series:
            raise MetricsError(
                Problem.NO_SERIES,
                f"{self._who} has no series of vLLM or specpilot in {where}: let it scrape the pods' ports"
                " http and specpilot with the labels namespace and pod (a PodMonitor does)",
            )
        return Snapshot(series)

    async def _post(self, query: str) -> dict[str, Any]:
        url, within = self.endpoint.url.rstrip("/") + "/api/v1/query", self.endpoint.timeout
        # The timeout in seconds: units take no fraction.
        data, headers = {"query": query, "timeout": f"{within:g}"}, self._headers()
        try:
            answer = await ask(
                self._open(), "POST", url, self._who, _HELP, within, LARGEST, data=data, headers=headers
            )
        except httpx.InvalidURL as e:
            raise MetricsError(
                Problem.CONFIGURATION, f"{self._who} has no usable url ({e}): {_HELP}"
            ) from None
        except MetricsError as e:
            await self.aclose()  # the next read opens a new one, with the CA file as it is then
            if why := unverified(e):
                text = (
                    f"{self._who} has a certificate that does not verify ({why}): set caFile to the CA that"
                )
                raise MetricsError(
                    Problem.UNREACHABLE, f"{text} signed it, and in url the name that it is for"
                ) from None
            raise
        if answer.status in (401, 403):
            raise MetricsError(
                Problem.REFUSED,
                f"{self._who} refused the operator (HTTP {answer.status}): check tokenFile and"
                " headers in the operator's configuration, and what they allow to read",
            )
        if answer.status == 200:
            return json_object(answer, self._who, f"HTTP 200; {_HELP}")
        problem = Problem.REFUSED if answer.status < 500 else Problem.FAILED
        failed = MetricsError(problem, f"{self._who} answered with HTTP {answer.status}: {_HELP}")
        try:
            doc = json_object(answer, self._who, _HELP)
        except MetricsError:
            raise failed from None
        if "error" not in doc:
            raise failed
        return {**doc, "status": "error"}

    def _headers(self) -> dict[str, str]:
        files = self.endpoint.header_files.items()
        headers = {
            **self.endpoint.headers,
            **{name: self._secret("headerFiles", file) for name, file in files},
        }
        if self.endpoint.token_file is not None:
            headers["Authorization"] = f"Bearer {self._secret('tokenFile', self.endpoint.token_file)}"
        return headers

    def _secret(self, kind: str, file: str) -> str:
        """A header's value from a file; what it holds is in no message, whatever is wrong with it."""
        try:
            value = Path(file).read_text(encoding="ascii", errors="replace").strip()
        except OSError as e:
            raise MetricsError(
                Problem.CONFIGURATION,
                f"{self._who}: {kind} {file} cannot be read ({e.strerror}): mount it into the operator's pod or"
                " remove it from the configuration",
            ) from None
        if not HEADER_VALUE.fullmatch(value):
            raise MetricsError(
                Problem.CONFIGURATION,
                f"{self._who}: {kind} {file} does not hold one line of printable ASCII: write the value into it",
            )
        return value

    def _open(self) -> httpx.AsyncClient:
        if self._client is None:
            verify: ssl.SSLContext | bool = not self.endpoint.insecure
            if self.endpoint.ca_file is not None and verify:
                try:
                    verify = ssl.create_default_context(cafile=self.endpoint.ca_file)
                except OSError as e:  # ssl.SSLError is one
                    raise MetricsError(
                        Problem.CONFIGURATION,
                        f"{self._who}: caFile {self.endpoint.ca_file} cannot be used ({e}): mount a PEM file there",
                    ) from None
            self._client = httpx.AsyncClient(
                verify=verify, timeout=self.endpoint.timeout, follow_redirects=False
            )
        return self._client


def _series(row: dict[str, Any]) -> Series:
    at, value = row["values"][-1]
    labels = row["metric"]
    if not all(isinstance(text, str) for text in (labels["__name__"], *labels.values())):
        raise TypeError(f"labels {labels}")
    return Series(labels, float(at), float(value))
