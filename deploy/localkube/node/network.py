"""What the node changes on the machine's network, and how it is taken back."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from pathlib import Path

from .layout import CNI_NETWORK, DNS_IP, LINK, NODE_IP, POD_BRIDGE, RUN

# Settings that kubelet, kube-proxy, the bridge plugin or we change.
SETTINGS = (
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/route_localnet",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
KEPT = RUN / "settings.json"


def up() -> None:
    """Give the node and its DNS their addresses, and remember the settings that will change.

    The addresses sit on a bridge without ports: not every kernel has `dummy` devices.
    """
    before = {name: Path("/proc/sys", name).read_text().strip() for name in SETTINGS if _has(name)}
    KEPT.write_text(json.dumps(before))
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    _run("ip", "link", "add", LINK, "type", "bridge")
    for address in (NODE_IP, DNS_IP):
        _run("ip", "addr", "replace", f"{address}/32", "dev", LINK)
    _run("ip", "link", "set", LINK, "up")


def down() -> None:
    """Remove links, packet filter rules and changed settings; what is not there is no error."""
    for link in (LINK, POD_BRIDGE):
        _run("ip", "link", "del", link, check=False)
    for family in ("iptables", "ip6tables"):
        if shutil.which(family):
            _clean(family)
    if KEPT.exists():
        for name, value in json.loads(KEPT.read_text()).items():
            Path("/proc/sys", name).write_text(value)


def _clean(family: str) -> None:
    """Drop Kubernetes' chains and our CNI network's rules, and leave all other rules as they are.

    kube-proxy's own clean-up forgets kubelet's chains, and the CNI plugins' rules stay when pods are
    ended by force.
    """
    saved = subprocess.run([f"{family}-save", "-c"], capture_output=True, text=True)
    if saved.returncode != 0:  # a kernel without this family has no rules of ours either
        return
    kept = without_ours(saved.stdout)
    if kept != saved.stdout:
        subprocess.run([f"{family}-restore", "-c"], input=kept, check=True, text=True, capture_output=True)


def without_ours(rules: str) -> str:
    """The text of iptables-save less every chain of ours and every rule in or to one."""
    ours = {"CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SETMARK", "CNI-HOSTPORT-MASQ"}
    lines = rules.splitlines(keepends=True)
    for line in lines:
        words = line.split()
        if line.startswith(":KUBE-"):
            ours.add(words[0][1:])
        elif f'name: \\"{CNI_NETWORK}\\"' in line and "-j" in words:
            ours.add(words[words.index("-j") + 1])
    ours -= {"ACCEPT", "DROP", "MASQUERADE", "RETURN", "DNAT", "MARK"}
    return "".join(line for line in lines if not ours & _chains(line))


def _chains(line: str) -> set[str]:
    """Chains that a line of iptables-save declares, appends to or jumps to."""
    words = line.split()
    named = {words[0][1:]} if line.startswith(":") else set()
    return named | {after for word, after in itertools.pairwise(words) if word in ("-A", "-j", "-g")}


def _has(name: str) -> bool:
    return Path("/proc/sys", name).exists()


def _run(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=True)
