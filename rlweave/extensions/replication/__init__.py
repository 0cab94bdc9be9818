"""Data-parallel replicas: a batch is split over devices, and gradients are averaged."""

from rlweave.extensions.replication.devices import replica_devices
from rlweave.extensions.replication.replicate import replicate

__all__ = ["replica_devices", "replicate"]
