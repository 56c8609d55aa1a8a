"""Reads the facts about this host."""

import os
import platform
import socket
from pathlib import Path

import psutil

from autotune import __version__
from autotune.model.host import HostFacts
from autotune.system import gpu

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_host() -> HostFacts:
    return HostFacts(
        hostname=socket.gethostname(),
        machine=platform.machine(),
        cpu_count=os.cpu_count() or 1,
        memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
        gpus=gpu.gpu_names(),
        driver=gpu.driver_version(),
        kernel=platform.release(),
        boot_id=read_boot_id(),
        autotune=__version__,
    )


def read_boot_id() -> str | None:
    """Identify this boot of the machine; None where the kernel does not say."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return None
