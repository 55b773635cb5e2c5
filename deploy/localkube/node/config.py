"""The parts' configuration files and command lines."""

from __future__ import annotations

import json
from pathlib import Path

from . import layout as at
from .layout import Layout

# Only writes, and only their metadata: who did what to which object.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "None"},
    ],
}


def write(layout: Layout, binaries: Path, cni: Path) -> None:
    """Write every configuration file and the folders they name."""
    for folder in (layout.logs, layout.pids, layout.pod_logs, layout.root / "cni", layout.root / "kubelet"):
        folder.mkdir(parents=True, exist_ok=True)
    (layout.root / "containerd.toml").write_text(_containerd(layout, binaries, cni))
    (layout.root / "Corefile").write_text(_corefile(layout))
    for name, content in {
        "cni/10-bridge.conflist": _network(layout),
        "kubelet.yaml": _kubelet(layout),
        "audit-policy.yaml": AUDIT_POLICY,
    }.items():
        (layout.root / name).write_text(json.dumps(content, indent=1))


def _containerd(layout: Layout, binaries: Path, cni: Path) -> str:
    # restrict_oom_score_adj: a machine without CAP_SYS_RESOURCE cannot lower oom_score_adj, and runc
    # then ends with an unrelated message. netns_mounts_under_state_dir: so that `down` finds all of ours
    # and none of anybody else's.
    return f'''version = 3
root = "{layout.root}/containerd"
state = "{at.RUN}/containerd"
[grpc]
  address = "{at.SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{layout.root}/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{at.PAUSE_IMAGE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{cni}"]
    conf_dir = "{layout.root}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = "{binaries}/containerd-shim-runc-v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      Root = "{at.RUN}/runc"
'''


def _network(layout: Layout) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "dataDir": f"{layout.root}/ipam",
        "ranges": [[{"subnet": at.NODE_POD_RANGE}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": at.POD_BRIDGE,
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": at.CNI_NETWORK, "plugins": [bridge, ports]}


def _kubelet(layout: Layout) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{at.SOCKET}",
        "podLogsDir": str(layout.pod_logs),
        "volumePluginDir": f"{layout.root}/volume-plugins",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,  # machines whose controllers are still on version 1 serve as well
        "failSwapOn": False,
        "enforceNodeAllocatable": [],  # the machine's own programs are not in cgroups we could limit
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{layout.pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{layout.pki}/kubelet.crt",
        "tlsPrivateKeyFile": f"{layout.pki}/kubelet.key",
        "clusterDomain": "cluster.local",
        "clusterDNS": [at.DNS_IP],
        "maxPods": 200,
        "serializeImagePulls": False,
        # A developer's disk is often nearly full: images are loaded by hand and must not be collected.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
    }


def _corefile(layout: Layout, resolv: Path = Path("/etc/resolv.conf")) -> str:
    servers = resolv.read_text() if resolv.exists() else ""
    # CoreDNS does not start with a forward to nowhere.
    forward = f"    forward . {resolv}\n" if "nameserver" in servers else ""
    return f""".:53 {{
    bind {at.DNS_IP}
    errors
    ready {at.DNS_IP}:8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {layout.pki}/dns.conf localkube
        ttl 5
    }}
{forward}    cache 5
}}
"""


def commands(layout: Layout, audit: bool) -> dict[str, list[str]]:
    """Arguments of every part, in the order in which they start."""
    pki, root = layout.pki, layout.root
    audit_flags = [f"--audit-policy-file={root}/audit-policy.yaml", f"--audit-log-path={layout.audit_log}"]
    return {
        "etcd": [
            f"--data-dir={root}/etcd",
            f"--listen-client-urls={at.ETCD}",
            f"--advertise-client-urls={at.ETCD}",
            f"--listen-peer-urls=unix://{at.RUN}/etcd-peer.sock",
            "--unsafe-no-fsync",  # nothing here outlives `down`
            "--log-level=warn",
        ],
        "kube-apiserver": [
            f"--etcd-servers={at.ETCD}",
            f"--secure-port={at.PORT}",
            f"--advertise-address={at.NODE_IP}",
            f"--service-cluster-ip-range={at.SERVICE_RANGE}",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/ca.crt",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={pki}/sa.key",
            f"--service-account-signing-key-file={pki}/sa.key",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-certificate-authority={pki}/ca.crt",
            f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
            f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
            *(audit_flags if audit else []),
        ],
        "containerd": ["--config", f"{root}/containerd.toml"],
        "kube-controller-manager": [
            *_delegated(pki / "controller-manager.conf"),
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={pki}/sa.key",
            f"--root-ca-file={pki}/ca.crt",
            f"--cluster-signing-cert-file={pki}/ca.crt",
            f"--cluster-signing-key-file={pki}/ca.key",
            "--allocate-node-cidrs=true",
            f"--cluster-cidr={at.POD_RANGE}",
            f"--flex-volume-plugin-dir={root}/volume-plugins",
        ],
        "kube-scheduler": [*_delegated(pki / "scheduler.conf"), "--leader-elect=false"],
        "coredns": ["-conf", f"{root}/Corefile"],
        "kubelet": [
            f"--config={root}/kubelet.yaml",
            f"--kubeconfig={pki}/kubelet.conf",
            f"--root-dir={root}/kubelet",
            f"--hostname-override={at.NODE}",
            f"--node-ip={at.NODE_IP}",
        ],
        "kube-proxy": [
            f"--kubeconfig={pki}/proxy.conf",
            f"--hostname-override={at.NODE}",
            "--proxy-mode=iptables",
            f"--cluster-cidr={at.POD_RANGE}",
            "--conntrack-max-per-core=0",  # the machine's own limits stay as they are
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
        ],
    }


def _delegated(kubeconfig: Path) -> list[str]:
    return [f"--{prefix}kubeconfig={kubeconfig}" for prefix in ("", "authentication-", "authorization-")]
