"""Looks at an API server, and removes, over one connection: kubectl each time would keep a small machine busy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kubernetes import client, config

Body = dict[str, Any]
DONE, NOT_FOUND, CONFLICT = (200, 202), 404, 409


class Reader:
    """Finds kinds by any name that kubectl takes: singular, plural, short."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api: client.ApiClient = config.new_client_from_config(str(kubeconfig))
        self._places: dict[str, tuple[str, str, bool]] = {}  # name of a kind → prefix, plural, namespaced

    def one(self, kind: str, name: str, namespace: str | None) -> Body | None:
        """The object, None where it is not there."""
        return self._ask(f"{self._path(kind, namespace)}/{name}")

    def all(self, kinds: str, namespace: str | None, selector: str = "") -> list[Body]:
        """Objects of each of the comma-separated kinds; without a namespace of the default one, "*": of all."""
        query = f"?{urlencode({'labelSelector': selector})}" if selector else ""
        found: list[Body] = []
        for kind in kinds.split(","):
            answer = self._ask(self._path(kind, namespace) + query) or {"items": []}
            item = {
                "apiVersion": answer.get("apiVersion"),
                "kind": answer.get("kind", "").removesuffix("List"),
            }
            found += [{**item, **body} for body in answer["items"]]
        return found

    def remove_namespace(self, name: str) -> None:
        """Have it removed, its pods at once; nothing where it is not there."""
        path = f"/api/v1/namespaces/{name}"
        self._ask(path, "DELETE")
        self._ask(f"{path}/pods?gracePeriodSeconds=0", "DELETE")

    def _path(self, kind: str, namespace: str | None) -> str:
        if kind not in self._places:
            self._discover()  # definitions may have come since
        assert kind in self._places, f"the API server knows no {kind}"
        prefix, plural, namespaced = self._places[kind]
        within = f"/namespaces/{namespace or 'default'}" if namespaced and namespace != "*" else ""
        return f"{prefix}{within}/{plural}"

    def _discover(self) -> None:
        groups = (self._ask("/apis") or {})["groups"]
        for prefix in (
            "/api/v1",
            *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups),
        ):
            for resource in (self._ask(prefix) or {"resources": []})["resources"]:
                plural = resource["name"]
                if "/" not in plural:
                    names = (plural, resource["singularName"], *resource.get("shortNames", ()))
                    for name in names:
                        self._places.setdefault(name, (prefix, plural, resource["namespaced"]))

    def _ask(self, path: str, verb: str = "GET") -> Body | None:
        address = self._api.configuration.host + path
        headers = {"Accept": "application/json"}
        self._api.update_params_for_auth(headers, [], ["BearerToken"], None, None, None)
        answer = self._api.call_api(verb, address, headers, _request_timeout=30)
        text = answer.read()
        if answer.status == NOT_FOUND or (verb == "DELETE" and answer.status == CONFLICT):
            return None  # what is being removed cannot be removed again
        assert answer.status in DONE, f"{path}: {answer.status} {text!r}"
        return dict(json.loads(text))
