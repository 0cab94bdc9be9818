"""Whether a Ray cluster answers at an address: Ray itself would go on asking for minutes, and heed no signal."""

from __future__ import annotations

import contextlib
import socket
import threading

from rlweave.errors import BackendError

ANSWER_SECONDS = 10.0
"""How long the cluster at an address may take to answer."""
_BEGIN = "begin one there by `ray start --head --port=PORT`; or address 'local', which begins one of its own"


def check_address(address: str, seconds: float = ANSWER_SECONDS) -> None:
    """Checks that a Ray cluster is to be expected at an address, before Ray is asked to join it.

    Args:
        address: As `RayEngine` takes it. Of ``"auto"`` it is what Ray will find, if anything.
        seconds: How long an answer may take.

    Raises:
        BackendError: Nobody answers there, or not as Ray does.
    """
    place = _found_by_ray() if address == "auto" else address
    if place is None or place == "local" or ("://" in place and not place.startswith("ray://")):
        return  # nothing to ask: what Ray says about it, it says at once
    host, _, port = place.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit() or int(port) >= 2**16:
        raise _refused(address, f"{place!r} is no address", "give it as host:port, or as 'local' or 'auto'")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except OSError as error:
        raise _refused(address, f"{place}: {error}", _BEGIN) from error
    if not place.startswith("ray://"):  # of a cluster's head, and not of a server of Ray's clients
        said = _asked(place, seconds)
        if said is not None:
            raise _refused(address, f"{place}: {said}", _BEGIN)


def _asked(place: str, seconds: float) -> str | None:
    """What is wrong with the answer of a cluster that is asked who it is; None if nothing is."""
    said = [f"something answers, but nothing came of asking it as a cluster of Ray for {seconds:g} seconds"]

    def ask() -> None:
        try:
            from ray._raylet import GcsClient  # type: ignore[attr-defined]  # compiled

            GcsClient(address=place)  # which asks; in a thread, since it takes its own time if there is no answer
        except ImportError:  # another version of Ray
            said.clear()
        except Exception as error:
            said[0] = f"{type(error).__name__}: {error}"
        else:
            said.clear()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
    return said[0] if said else None


def _found_by_ray() -> str | None:
    """The address that Ray means by "auto": of its environment variable, or of what runs on this machine."""
    with contextlib.suppress(Exception):  # it raises where it finds none, and says so again when it is to join
        from ray._private.services import canonicalize_bootstrap_address

        found: str | None = canonicalize_bootstrap_address("auto")
        return found
    return None


def _refused(address: str, received: str, fix: str) -> BackendError:
    return BackendError("no Ray cluster answers", where=f"RayEngine(address={address!r})", received=received, fix=fix)
