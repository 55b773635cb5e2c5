"""The one connection to the API server: requests by kind, and errors as specpilot.cluster.errors."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml
from kubernetes.aio import client as kube
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION
from kubernetes.aio.dynamic import DynamicClient

from specpilot.api.vocabulary import MANAGER
from specpilot.cluster.errors import ClusterError, NotFound, Unavailable, from_status
from specpilot.cluster.kinds import Kind, kind_of
from specpilot.cluster.missing import Missing

TIMEOUT = 15.0  # seconds; above the API server's own priority-and-fairness queueing for small requests
PAGE = 500  # objects per list request

Body = dict[str, Any]

# Control characters, line breaks, halves of surrogate pairs, byte order marks.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


class Cluster:
    """Bodies are plain dictionaries, in and out. Every method raises ClusterError and nothing else."""

    def __init__(self, api: kube.ApiClient) -> None:
        api.user_agent = MANAGER
        self._api = api
        # Never awaited, so it discovers nothing: paths come from specpilot.cluster.kinds.
        self._dynamic = DynamicClient(api)
        self.missing: dict[str, Missing] = {}  # by kind, as refusals have told

    @classmethod
    async def connect(cls, kubeconfig: str | None = None) -> Self:
        """From a kubeconfig, or from the pod's service account, or from the user's default kubeconfig."""
        configuration = kube.Configuration()
        where = kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION or "~/.kube/config"
        try:
            if kubeconfig is None:
                try:
                    kube_config.load_incluster_config(client_configuration=configuration)
                    return cls(kube.ApiClient(configuration))
                except kube_config.ConfigException:
                    pass
            # Without a file the library warns on standard error and complains of what is not in it.
            if not any(Path(path).expanduser().exists() for path in where.split(os.pathsep)):
                raise ClusterError(
                    f"No cluster to talk to ({where} does not exist): set KUBECONFIG, or run in a pod with a"
                    " service account."
                )
            await kube_config.load_kube_config(config_file=where, client_configuration=configuration)
            if not (configuration.host or "").startswith(("http://", "https://")):
                raise ClusterError(
                    f"No cluster to talk to ({where} names the server {configuration.host}, which is no URL):"
                    " let it begin with https://."
                )
            return cls(kube.ApiClient(configuration))
        except ssl.SSLError as e:
            raise ClusterError(
                f"No cluster to talk to (the certificates that {where} names cannot be read: {e.reason or e}):"
                " correct them."
            ) from None
        except (kube_config.ConfigException, OSError) as e:
            raise ClusterError(
                f"No cluster to talk to ({e}): run in a pod with a service account, or set KUBECONFIG."
            ) from None
        # What the library makes of a file that is YAML but no kubeconfig, or not even YAML.
        except (AttributeError, KeyError, TypeError, ValueError, yaml.YAMLError):
            raise ClusterError(f"No cluster to talk to ({where} is no kubeconfig): correct it.") from None

    async def aclose(self) -> None:
        await self._api.close()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body | None:
        """The object, or None where there is none."""
        try:
            return await self._request("get", kind.path(namespace, name), f"read of {kind.name} {name}")
        except NotFound:
            return None

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> tuple[list[Body], str]:
        """All objects and the resource version of the list. Raises NotFound where the kind does not exist."""
        items: list[Body] = []
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(PAGE), "continue": ""}
        while True:
            page = await self._request("get", kind.path(namespace), f"list of {kind.plural}", query=query)
            # Items of a list lack what every body elsewhere has.
            items += [
                {"apiVersion": kind.api_version, "kind": kind.name, **item}
                for item in page.get("items") or []
            ]
            query["continue"] = page["metadata"].get("continue") or ""
            if not query["continue"]:
                return items, str(page["metadata"].get("resourceVersion", ""))

    async def exists(self, kind: Kind) -> bool:
        """Whether the cluster serves this kind."""
        try:
            group = await self._request("get", f"/apis/{kind.api_version}", f"discovery of {kind.name}")
        except NotFound:
            return False
        return any(r.get("name") == kind.plural for r in group.get("resources", []))

    async def apply(
        self, body: Body, subresource: str = "", dry_run: bool = False, onto: Body | None = None
    ) -> Body:
        """Server-side apply as the one field manager, taking over fields that others set to other values.

        `onto`: only if this is still how the object is; raises Conflict otherwise.
        """
        kind, meta = kind_of(body), body["metadata"]
        query = {"fieldManager": MANAGER, "force": "true", **({"dryRun": "All"} if dry_run else {})}
        if onto is not None:
            body = {**body, "metadata": {**meta, "resourceVersion": onto["metadata"]["resourceVersion"]}}
        return await self._request(
            "patch",
            kind.path(meta.get("namespace"), meta["name"], subresource),
            f"apply of {kind.name} {meta['name']}",
            body=apply_patch(body),
            query=query,
            content_type="application/apply-patch+yaml; charset=utf-8",
        )

    async def create(self, body: Body) -> Body:
        kind, meta = kind_of(body), body["metadata"]
        what = f"creation of {kind.name} {meta['name']}"
        return await self._request("post", kind.path(meta.get("namespace")), what, body=body)

    async def replace(self, body: Body) -> Body:
        """Raises Conflict when the body's resource version is not the present one."""
        kind, meta = kind_of(body), body["metadata"]
        what = f"update of {kind.name} {meta['name']}"
        return await self._request("put", kind.path(meta.get("namespace"), meta["name"]), what, body=body)

    async def merge(self, kind: Kind, namespace: str | None, name: str, patch: Body) -> Body:
        """JSON merge patch."""
        return await self._request(
            "patch",
            kind.path(namespace, name),
            f"patch of {kind.name} {name}",
            body=patch,
            query={"fieldManager": MANAGER},
            content_type="application/merge-patch+json",
        )

    async def delete(self, kind: Kind, namespace: str | None, name: str, uid: str) -> None:
        """In the background, and only the object of this uid; one that is gone already is no error."""
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        try:
            await self._request(
                "delete", kind.path(namespace, name), f"deletion of {kind.name} {name}", body=options
            )
        except NotFound:
            return

    async def _request(
        self,
        method: str,
        path: str,
        what: str,
        body: Body | bytes | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> Body:
        parameters = [(key, value) for key, value in (query or {}).items() if value]
        try:
            response = await self._dynamic.request(
                method,
                path,
                body=body,
                query_params=parameters,
                content_type=content_type,
                serialize=False,
                _request_timeout=TIMEOUT,
            )
            answer: Body = await response.json()
            return answer
        except ApiException as e:
            raise from_status(e.status or 0, e.body, what) from None
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as e:
            detail = str(e) or type(e).__name__
            raise Unavailable(f"{what}: the API server does not answer ({detail})") from None


def apply_patch(body: Body) -> bytes:
    """JSON that is YAML as well, which JSON's own escapes are not: a character beyond the first 65536, such as an
    emoji, is two of them in JSON, and no character in YAML. What YAML does not take as it is, is escaped."""
    text = json.dumps(body, ensure_ascii=False)
    return _NOT_IN_YAML.sub(_escaped, text).encode()


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return "\\ufffd" if 0xD800 <= code < 0xE000 else f"\\u{code:04x}"
