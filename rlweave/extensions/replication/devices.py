"""The devices that a build names for replicas."""

from __future__ import annotations

from collections.abc import Sequence

from rlweave.backends import Backend
from rlweave.backends.base import TOGETHER
from rlweave.errors import BuildError
from rlweave.extensions.placement import device_name


def replica_devices(replicas: int | Sequence[str], backend: Backend) -> tuple[str, ...]:
    """The device of each replica by its full name; where one program runs on all of them, their one place.

    Args:
        replicas: How many, on as many devices of the kind where things are by default; or the devices.
        backend: Where the graph runs.

    Raises:
        BuildError: The backend has no (or not so many) devices.
    """
    if not backend.maps_devices:
        raise BuildError(
            f"the {backend.name} backend does not replicate",
            where="build(replicas=...)",
            received=repr(replicas),
            fix='leave replicas out, or use backend="jax" or backend="torch"',
        )
    names = backend.device_names()
    if isinstance(replicas, int):
        kind = names[0].partition(":")[0]
        alike = [name for name in names if name.partition(":")[0] == kind]
        if replicas < 1:
            raise BuildError(
                "replicas are at least one", where="build(replicas=...)", received=repr(replicas), fix="2, say"
            )
        if replicas > len(alike):
            raise BuildError(
                "there are not so many devices for replicas",
                where="build(replicas=...)",
                received=f"{replicas}; there are {alike}",
                fix=f"use at most {len(alike)}"
                + ("" if backend.spreads else f", or name them: replicas={[alike[0]] * 2} puts two on one device"),
            )
        return _together(alike[:replicas], backend)
    if not replicas:
        raise BuildError(
            "replicas need devices", where="build(replicas=...)", received="none", fix=f"{list(names)}, say"
        )
    return _together([device_name(backend, name, "build(replicas=...)") for name in replicas], backend)


def _together(devices: Sequence[str], backend: Backend) -> tuple[str, ...]:
    if not backend.spreads or len(devices) == 1:
        return tuple(devices)
    if len(set(devices)) < len(devices):
        raise BuildError(
            "a program runs on each device once",
            where="build(replicas=...)",
            received=repr(list(devices)),
            fix="name each device once; XLA_FLAGS=--xla_force_host_platform_device_count=2 makes two of a CPU",
        )
    return (TOGETHER.join(devices),)
