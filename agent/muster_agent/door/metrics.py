"""Figures of this node for Prometheus, on loopback, where the operator asks for them.

Source: the Prometheus text exposition format, version 0.0.4.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from muster_agent.core.picture import Picture

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = {ord("\\"): "\\\\", ord('"'): '\\"', ord("\n"): "\\n"}
Sample = tuple[Mapping[str, str], int]


def rendered(picture: Picture | None, boot_ms: int) -> str:
    """Write the figures; before the first picture there is none but that."""
    families = list(_families(picture, boot_ms)) if picture else []
    lines = [*_family("muster_agent_up", "Whether the agent has a picture of its host.", [({}, int(bool(picture)))])]
    for name, text, samples in families:
        lines += _family(name, text, samples)
    return "\n".join(lines) + "\n"


def _families(picture: Picture, boot_ms: int) -> Iterable[tuple[str, str, list[Sample]]]:
    inventory = picture.inventory
    gpus = inventory.gpus if inventory else []
    yield "muster_agent_info", "Of which version it is.", [({"version": picture.agent_version}, 1)]
    age_s = max(boot_ms - picture.written_boot_ms, 0) // 1_000
    yield "muster_agent_picture_age_seconds", "How old these figures are.", [({}, age_s)]
    yield "muster_agent_coordinator_heard", "Whether the coordinator answered lately.", [({}, int(picture.heard))]
    yield "muster_agent_applied_revision", "The desired state that is carried out.", [({}, picture.applied_rev)]
    yield (
        "muster_agent_nvml_ok",
        "Whether NVML answers.",
        [({}, int(bool(inventory and inventory.monitoring.nvml == "ok")))],
    )
    seen: list[Sample] = [({"uuid": gpu.uuid, "pci": gpu.pci}, int(gpu.seen)) for gpu in gpus]
    yield "muster_agent_gpu_seen", "Whether a GPU that was here before is here.", seen
    holds: dict[tuple[str, str], int] = {}
    for hold in picture.holds:
        key = (hold.device or "", hold.cause)
        holds[key] = holds.get(key, 0) + 1
    held: list[Sample] = [({"device": device, "cause": cause}, count) for (device, cause), count in holds.items()]
    yield "muster_agent_holds", "Why devices may not be booked; the node's own have no device.", held
    states: list[Sample] = [
        ({"allocation": one.allocation_id, "state": one.state, "tenant": one.tenant_id or ""}, 1)
        for one in picture.assignments
    ]
    yield "muster_agent_assignment", "What became of each assignment.", states
    guards: list[Sample] = [({"allocation": one.allocation_id}, int(one.guard_armed)) for one in picture.assignments]
    yield "muster_agent_guard_armed", "Whether an end is armed outside the agent.", guards


def _family(name: str, text: str, samples: Iterable[Sample]) -> Iterable[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} gauge"
    for labels, value in samples:
        inside = ",".join(f'{label}="{said.translate(_ESCAPES)}"' for label, said in labels.items())
        yield f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"


@asynccontextmanager
async def offering(
    listen: str, latest: Callable[[], Picture | None], boot_ms: Callable[[], int]
) -> AsyncGenerator[tuple[str, int]]:
    """Serve `/metrics` for as long as the block lasts; gives the address.

    Args:
        listen: `HOST:PORT`, checked to be loopback.
        latest: The picture to be shown.
        boot_ms: The boot clock.

    Raises:
        OSError: The port is taken.
    """

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=rendered(latest(), boot_ms()).encode(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        host, _, port = listen.rpartition(":")
        await web.TCPSite(runner, host.strip("[]"), int(port)).start()
        address: tuple[str, int] = runner.addresses[0][:2]
        yield address
    finally:
        await runner.cleanup()
