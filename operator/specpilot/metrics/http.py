"""One way to ask for something over HTTP, and one error with a sentence for whatever goes wrong."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import httpx

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
HEADER_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")  # what every server takes; spaces inside only


class Problem(StrEnum):
    """What kept a measurement from being read."""

    UNREACHABLE = "Unreachable"
    TIMEOUT = "Timeout"
    REFUSED = "Refused"  # a 4xx, or a redirect to some login page
    FAILED = "Failed"  # a 5xx, or a query that failed
    MALFORMED = "Malformed"  # an answer, but not of the expected kind
    NO_SERIES = "NoSeries"  # a valid answer in which the wanted series are missing
    UNKNOWN_ENDPOINT = "UnknownEndpoint"
    CONFIGURATION = "Configuration"  # a token or CA file of the operator's that cannot be used


class MetricsError(Exception):
    """No measurement; `message` is one sentence that says what to do."""

    def __init__(self, reason: Problem, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def base_url(ip: str, port: int) -> str:
    """http://IP:PORT, with the brackets that IPv6 needs."""
    return f"http://[{ip}]:{port}" if ":" in ip else f"http://{ip}:{port}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete one."""

    status: int
    content: bytes


async def ask(
    client: httpx.AsyncClient,
    method: str,
    url: str,
    who: str,
    advice: str,
    within: float,
    limit: int,
    **request: Any,
) -> Answer:
    """The whole answer, of at most `limit` bytes, or MetricsError after `within` seconds.

    The client's own timeouts are for the next byte: whoever sends one now and then would keep the tick, and with
    it every other deployment, waiting. Raises httpx.InvalidURL as well.
    """
    content = bytearray()
    try:
        async with asyncio.timeout(within), client.stream(method, url, **request) as response:
            async for part in response.aiter_bytes():
                content += part
                if len(content) > limit:
                    raise MetricsError(
                        Problem.MALFORMED, f"{who} answered with more than {limit >> 20} MiB: {advice}"
                    )
    except (TimeoutError, httpx.TimeoutException):
        raise MetricsError(Problem.TIMEOUT, f"{who} did not answer in time: {advice}") from None
    except httpx.HTTPError as e:
        detail = str(e) or type(e).__name__
        raise MetricsError(Problem.UNREACHABLE, f"{who} cannot be reached ({detail}): {advice}") from e
    return Answer(response.status_code, bytes(content))


def unverified(error: MetricsError) -> str:
    """What does not verify about a server's certificate; "" where that is not what is wrong."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return cause.verify_message
        cause = cause.__cause__ or cause.__context__
    return ""


def json_object(answer: Answer, who: str, advice: str) -> dict[str, Any]:
    """The JSON object in an answer. Raises MetricsError when it holds anything else."""
    try:
        doc = json.loads(answer.content)
    except (ValueError, RecursionError):
        doc = None
    if not isinstance(doc, dict):
        raise MetricsError(Problem.MALFORMED, f"{who} answered with something that is not its JSON: {advice}")
    return doc
