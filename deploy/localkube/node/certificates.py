"""The cluster's own certificate authority, certificates and kubeconfigs, made by openssl."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

from .layout import NODE, NODE_IP, SERVER, SERVICE_IP, Layout

# Subject and alternative names by file name. The parts authenticate by these subjects, to which
# Kubernetes' built-in roles are bound; DNS gets its role from `up`.
SUBJECTS = {
    "apiserver": (
        "/CN=kube-apiserver",
        "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,"
        f"DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:{SERVICE_IP},IP:{NODE_IP}",
    ),
    "apiserver-kubelet-client": ("/O=system:masters/CN=kube-apiserver-kubelet-client", "DNS:apiserver"),
    "admin": ("/O=system:masters/CN=admin", "DNS:admin"),
    "kubelet": (f"/O=system:nodes/CN=system:node:{NODE}", f"DNS:{NODE},IP:127.0.0.1,IP:{NODE_IP}"),
    "controller-manager": ("/CN=system:kube-controller-manager", "DNS:controller-manager"),
    "scheduler": ("/CN=system:kube-scheduler", "DNS:scheduler"),
    "proxy": ("/CN=system:kube-proxy", "DNS:proxy"),
    "dns": ("/CN=localkube:dns", "DNS:dns"),
}
KUBECONFIGS = ("admin", "kubelet", "controller-manager", "scheduler", "proxy", "dns")
NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def make(layout: Layout) -> None:
    """Write the authority, a key and a certificate per part, and their kubeconfigs."""
    pki = layout.pki
    pki.mkdir(parents=True, exist_ok=True)
    pki.chmod(0o700)
    # A configuration of our own: the machine's default one would mark every certificate as an authority.
    (pki / "openssl.cnf").write_text("[req]\ndistinguished_name = dn\n[dn]\n")
    _request(
        pki,
        "ca",
        "/CN=localkube",
        "basicConstraints=critical,CA:TRUE",
        "keyUsage=critical,keyCertSign,cRLSign",
        "subjectKeyIdentifier=hash",
    )
    for name, (subject, alternatives) in SUBJECTS.items():
        _request(
            pki,
            name,
            subject,
            "basicConstraints=critical,CA:FALSE",
            "keyUsage=critical,digitalSignature",
            "extendedKeyUsage=serverAuth,clientAuth",
            "subjectKeyIdentifier=hash",
            "authorityKeyIdentifier=keyid",
            f"subjectAltName={alternatives}",
            signed=True,
        )
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(pki / "sa.key"))
    for name in KUBECONFIGS:
        path = pki / f"{name}.conf"
        path.write_text(json.dumps(_kubeconfig(pki, name), indent=1))
        path.chmod(0o600)


def _request(pki: Path, name: str, subject: str, *extensions: str, signed: bool = False) -> None:
    authority = ("-CA", str(pki / "ca.crt"), "-CAkey", str(pki / "ca.key")) if signed else ()
    _openssl(
        *("req", "-x509", *NEW_KEY, "-days", "3650", "-config", str(pki / "openssl.cnf"), *authority),
        *("-subj", subject, "-keyout", str(pki / f"{name}.key"), "-out", str(pki / f"{name}.crt")),
        *(part for extension in extensions for part in ("-addext", extension)),
    )


def _openssl(*args: str) -> None:
    subprocess.run(("openssl", *args), check=True, capture_output=True)


def _kubeconfig(pki: Path, name: str) -> dict[str, object]:
    def data(file: str) -> str:
        return base64.b64encode((pki / file).read_bytes()).decode()

    user = {"client-certificate-data": data(f"{name}.crt"), "client-key-data": data(f"{name}.key")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "localkube", "cluster": {"server": SERVER, "certificate-authority-data": data("ca.crt")}}
        ],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "localkube", "context": {"cluster": "localkube", "user": name}}],
        "current-context": "localkube",
    }
