"""The machine that figures are taken on, and meters for what runs on it. Linux tells most; the unknown is left out."""

import os
import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import psutil

from clients.bench.figures import MachineFigures, Usage

CPU_INFO: Final = Path("/proc/cpuinfo")
NVIDIA: Final = Path("/proc/driver/nvidia/gpus")


def describe_machine() -> MachineFigures:
    """What somebody needs to compare figures."""
    return MachineFigures(
        processor=_processor(),
        cores=usable_cores(),
        memory_gib=psutil.virtual_memory().total / 2**30,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        torch=_version("torch"),
        accelerators=_accelerators(),
    )


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = CPU_INFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    pairs = (line.partition(":") for line in lines)
    facts = {name.strip(): value.strip() for name, _, value in pairs}
    flags = set(facts.get("flags", "").split())
    wide = [name for name in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16") if name in flags]
    return f"{facts.get('model name', platform.machine())} ({' '.join(wide)})" if wide else facts.get("model name", "")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"


def _accelerators() -> tuple[str, ...]:
    """Names of NVIDIA devices, from the driver: asking torch would load it here."""
    names = []
    for information in sorted(NVIDIA.glob("*/information")):
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("Model:"):
                names.append(line.partition(":")[2].strip())
    return tuple(names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Seconds of core time used so far."""

    at_s: float
    service_s: float
    worker_s: float
    client_s: float
    all_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """Reads what the parties of a trial have used."""

    service_pid: int | None
    """None: it runs elsewhere and is not metered."""
    client_pid: int

    def read(self) -> Reading:
        """Now."""
        workers = self._workers()
        return Reading(
            at_s=time.monotonic(),
            service_s=_used_s([psutil.Process(self.service_pid)]) if self.service_pid is not None else 0.0,
            worker_s=_used_s(workers),
            client_s=_used_s([psutil.Process(self.client_pid)]),
            all_s=_busy_s(),
        )

    def memory_bytes(self) -> int:
        """Of service and workers: what they alone hold and their share of what they share, where the system tells."""
        if self.service_pid is None:
            return 0
        return sum(map(_memory_bytes, [psutil.Process(self.service_pid), *self._workers()]))

    def _workers(self) -> list[psutil.Process]:
        return psutil.Process(self.service_pid).children(recursive=True) if self.service_pid is not None else []


def usage_between(before: Reading, after: Reading) -> Usage:
    """Cores in use from one reading to the next."""
    elapsed_s = max(1e-3, after.at_s - before.at_s)
    service, workers = after.service_s - before.service_s, after.worker_s - before.worker_s
    client, everything = after.client_s - before.client_s, after.all_s - before.all_s
    return Usage(
        service_cores=service / elapsed_s,
        worker_cores=workers / elapsed_s,
        client_cores=client / elapsed_s,
        other_cores=max(0.0, everything - service - workers - client) / elapsed_s,
    )


def _used_s(processes: Iterable[psutil.Process]) -> float:
    used_s = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        used_s += times.user + times.system
    return used_s


def _busy_s() -> float:
    """Of the whole machine, time that a hypervisor took included."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


def _memory_bytes(process: psutil.Process) -> int:
    try:
        memory = process.memory_full_info()
        return int(getattr(memory, "pss", 0) or memory.uss)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0
