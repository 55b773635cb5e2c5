"""One way to ask for something over HTTP, and one error with a sentence for whatever goes wrong."""

from __future__ import annotations

import json
import re
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


def transport_error(error: httpx.HTTPError, who: str, advice: str) -> MetricsError:
    """MetricsError for a request that got no complete answer."""
    if isinstance(error, httpx.TimeoutException):
        return MetricsError(Problem.TIMEOUT, f"{who} did not answer in time: {advice}")
    detail = str(error) or type(error).__name__
    return MetricsError(Problem.UNREACHABLE, f"{who} cannot be reached ({detail}): {advice}")


def json_object(response: httpx.Response, who: str, advice: str) -> dict[str, Any]:
    """The JSON object in an answer. Raises MetricsError when it holds anything else."""
    try:
        doc = json.loads(response.content)
    except (ValueError, RecursionError):
        doc = None
    if not isinstance(doc, dict):
        raise MetricsError(Problem.MALFORMED, f"{who} answered with something that is not its JSON: {advice}")
    return doc
