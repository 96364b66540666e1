"""The rules by which container runtimes take a CDI spec, or take none of it.

Source: the Container Device Interface specification and its JSON schema; agent facts, section 4.1.
"""

import re
from typing import Any

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
KIND = re.compile(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")
SPEC = {"cdiVersion", "kind", "devices", "containerEdits", "annotations"}
DEVICE = {"name", "containerEdits", "annotations"}
EDITS = {"env", "deviceNodes", "mounts", "hooks", "additionalGids", "intelRdt", "netDevices"}
NODE = {"path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"}
SINCE = {
    "annotations": "0.6.0",
    "additionalGids": "0.7.0",
    "intelRdt": "0.7.0",
    "netDevices": "1.1.0",
    "hostPath": "0.5.0",
}


def broken_rules(spec: dict[str, Any]) -> list[str]:
    """List what a runtime would refuse in a spec; empty for one that it takes."""
    found = [f"unknown field {name}" for name in spec.keys() - SPEC]
    if spec.get("cdiVersion") not in VERSIONS:
        found.append(f"cdiVersion {spec.get('cdiVersion')}")
    if not KIND.fullmatch(spec.get("kind", "")):
        found.append(f"kind {spec.get('kind')}")
    devices = spec.get("devices", [])
    names = [device.get("name", "") for device in devices]
    if not devices or len(set(names)) < len(names):
        found.append("devices are none, or two of one name")
    found += [f"name {name}" for name in names if not NAME.fullmatch(name)]
    for device in devices:
        found += [f"unknown field {name} of a device" for name in device.keys() - DEVICE]
        found += _edits(device.get("containerEdits", {}), needs_one=True)
    return [*found, *_edits(spec.get("containerEdits", {}), needs_one=False), *_too_new(spec)]


def _edits(edits: dict[str, Any], *, needs_one: bool) -> list[str]:
    found = [f"unknown edit {name}" for name in edits.keys() - EDITS]
    if needs_one and not edits:
        found.append("a device without edits")
    found += [f"env {item}" for item in edits.get("env", []) if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=.*", item)]
    for node in edits.get("deviceNodes", []):
        found += [f"unknown field {name} of a node" for name in node.keys() - NODE]
        if not str(node.get("path", "")).startswith("/"):
            found.append(f"path {node.get('path')}")
    if "deviceNodes" in edits and not edits["deviceNodes"]:
        found.append("an empty list of nodes")
    return found


def _too_new(spec: dict[str, Any]) -> list[str]:
    text, version = str(spec), spec.get("cdiVersion")
    if version not in VERSIONS:
        return []
    used = {name: since for name, since in SINCE.items() if f"'{name}'" in text}
    return [f"{name} needs {since}" for name, since in used.items() if VERSIONS.index(since) > VERSIONS.index(version)]
