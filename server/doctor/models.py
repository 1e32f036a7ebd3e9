"""What the models need: torch, a device, threads, weights, memory."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from server.configuration.config import FinalConfig, LiveConfig, MoorageConfig
from server.doctor.finding import Finding, fault, ok, warning

if TYPE_CHECKING:
    from asr_model.probe import TorchFacts

MODEL_BYTES: Final = {"moonshine-live": 400 << 20, "moonshine-base": 450 << 20, "light-lstm": 250 << 20}
"""Memory of one process with the model, on the CPU and without slots: roughly, for a warning in time."""
GIB: Final = float(1 << 30)
CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


def check_torch(config: MoorageConfig) -> Iterator[Finding]:
    """Version, devices asked for, threads against cores."""
    try:
        from asr_model.probe import torch_facts

        facts = torch_facts()
    except (ImportError, OSError) as error:
        advice = "pip install torch (for the CPU alone: --index-url https://download.pytorch.org/whl/cpu)"
        yield fault("torch", f"cannot be loaded: {error}", advice)
        return
    build = f"built for CUDA {facts.cuda_build}" if facts.cuda_build else "built for the CPU"
    yield ok("torch", f"torch {facts.version}, {build}, {_devices(facts)}")
    yield from _device_findings(config, facts)
    yield from _thread_findings(config)


def check_weights(config: MoorageConfig) -> Iterator[Finding]:
    """Loads what the configured models would load."""
    from asr_model.moonshine.weights import WeightsError
    from asr_model.probe import checkpoint_facts, moonshine_facts

    sources: dict[str, str] = {}
    if config.live.model == "moonshine-live":
        checkpoint = str(config.live.options.get("checkpoint", ""))
        try:
            facts = checkpoint_facts(checkpoint)
            yield ok("live weights", f"{facts.source.name}: {facts.parameters / 1e6:.1f} M parameters")
        except ValueError as error:
            advice = (
                "correct live.options.checkpoint" if checkpoint else "install the package again: it carries the file"
            )
            yield fault("live weights", str(error), advice)
        sources["live"] = str(config.live.options.get("weights", ""))
    if config.final.model == "moonshine-base":
        sources["final"] = str(config.final.options.get("weights", ""))
    for source in dict.fromkeys(sources.values()):
        try:
            found = moonshine_facts(source)
            yield ok("moonshine weights", f"{found.source}: {found.parameters / 1e6:.1f} M parameters")
        except WeightsError as error:
            text, _, advice = str(error).partition("\n")
            yield fault("moonshine weights", text, advice or "give options.weights or MOORAGE_MOONSHINE another place")


def check_memory(config: MoorageConfig) -> Iterator[Finding]:
    """The memory of models and slots against what there is: the GPU's if the live model runs on one."""
    from asr_model.probe import torch_facts

    machine_bytes, devices = _machine_bytes(), torch_facts().devices
    if machine_bytes is None:
        yield ok("memory", "not known on this system")
        return
    live, final = config.live, config.final
    is_on_gpu = live.device.startswith("cuda") or (live.device == "auto" and bool(devices))
    models_bytes = live.n_instances * MODEL_BYTES.get(live.model, 0)
    models_bytes += final.n_instances * MODEL_BYTES.get(final.model, 0) if final.enabled else 0
    if models_bytes > machine_bytes:
        text = f"models take about {models_bytes / GIB:.1f} GiB, there are {machine_bytes / GIB:.1f} GiB"
        yield warning("memory", text, "lower live.instances or final.instances")
        return
    if is_on_gpu and devices:
        yield _slot_finding(config, "gpu memory", min(device.total_bytes for device in devices) - models_bytes)
    else:
        yield _slot_finding(config, "memory", machine_bytes - models_bytes)


def _slot_finding(config: MoorageConfig, check: str, room_bytes: int) -> Finding:
    """The slots of all live instances against the room that the models leave."""
    from asr_model.live.settings import LiveSettings
    from asr_model.probe import live_slot_bytes

    live = config.live
    if live.model != "moonshine-live":
        return ok(check, f"{room_bytes / GIB:.1f} GiB for slots")
    slot_bytes = live_slot_bytes(LiveSettings.of(live.options))
    room = room_bytes // slot_bytes
    text = f"a slot takes {slot_bytes / (1 << 20):.0f} MiB, there is room for about {room}"
    if live.slots == 0:
        return ok(check, f"{text}; how many there are is measured at the start, up to {live.max_slots} per instance")
    asked = live.slots * live.n_instances
    if asked > room:
        return warning(
            check, f"{text}, not for {asked}", "lower live.slots, live.instances or live.options.max_utterance_s"
        )
    return ok(check, f"{text}; {asked} are asked for")


def _devices(facts: "TorchFacts") -> str:
    if not facts.devices:
        return "no usable GPU"
    return ", ".join(
        f"cuda:{index} {device.name} ({device.free_bytes / GIB:.0f} of {device.total_bytes / GIB:.0f} GiB free)"
        for index, device in enumerate(facts.devices)
    )


def _device_findings(config: MoorageConfig, facts: "TorchFacts") -> Iterator[Finding]:
    sections = {"live": config.live.device}
    if config.final.enabled:
        sections["final"] = config.final.device
    for section, device in sections.items():
        check = f"{section} device"
        index = int(device.partition(":")[2] or 0) if device.startswith("cuda") else -1
        if index >= len(facts.devices):
            why = "torch is built for the CPU alone" if facts.cuda_build is None else f"there are {len(facts.devices)}"
            advice = (
                "install a CUDA build of torch and the NVIDIA driver (nvidia-smi must answer), or set device = 'auto'"
            )
            yield fault(check, f"{section}.device = {device}: not usable, {why}", advice)
        else:
            chosen = "cuda" if facts.devices else "cpu"
            yield ok(check, f"{device}, which is {chosen} here" if device == "auto" else device)


def _thread_findings(config: MoorageConfig) -> Iterator[Finding]:
    from asr_model.probe import usable_cores

    cores = usable_cores()
    models: list[LiveConfig | FinalConfig] = [config.live, *([config.final] if config.final.enabled else [])]
    instances = sum(model.n_instances for model in models)
    asked = sum(model.n_instances * (model.threads or max(1, cores // instances)) for model in models)
    text = f"{instances} instances with {asked} threads on {cores} {'core' if cores == 1 else 'cores'}"
    if any(model.threads for model in models) and asked > cores:
        yield warning(
            "threads", text, "threads that share a core wait for each other: lower live.threads, final.threads"
        )
    elif config.live.n_instances > cores:
        yield warning("threads", text, "live instances share cores: lower live.instances to the number of cores")
    else:
        yield ok("threads", text)


def _machine_bytes() -> int | None:
    """The machine's memory, or the container's if that is less."""
    try:
        machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None
    try:
        return min(machine_bytes, int(CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no control groups, or "max"
        return machine_bytes
