"""Data-parallel replicas: a batch is split over devices, and gradients are averaged."""

from rlweave.extensions.replication.replicate import replica_devices, replicate

__all__ = ["replica_devices", "replicate"]
