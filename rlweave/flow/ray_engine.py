"""The engine on Ray: every actor is a process, every event an object reference, and ``ray.wait`` the one place to wait.

Needs the extra ``rlweave[ray]``; nothing else in rlweave imports ray.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from rlweave.errors import BackendError, PlanError, install_command
from rlweave.flow.engine import Actor, ActorLost, ArgumentFailed, Call
from rlweave.flow.resources import Resources

try:
    import ray
    from ray import cloudpickle
except ImportError as missing:
    raise BackendError("Ray is not installed", where="rlweave.flow.ray_engine", fix=install_command("ray")) from missing

# these import Ray as well, so it is looked for before
from rlweave.flow.ray_host import PackedError, RayHost, owned

OBJECT_STORE_BYTES = 256 * 2**20
"""Shared memory for items and weights on their way. Items are copied out of it, so it need not hold a memory."""
ADDRESS_SECONDS = 10.0
"""How long the cluster at an address may take to answer."""
_BEGIN = "begin one there by `ray start --head --port=PORT`; or address 'local', which begins one of its own"
FETCH_SECONDS = 60.0
"""How long the transfer of a result that is done may take."""


class RayCall:
    """A call of an actor on Ray.

    Args:
        reference: Ray's reference to what the method returns.
        needs: The calls among its arguments of which nobody knows yet what becomes of them.
        is_part: Whether it is one value of several, which is used only when another one of them has come.
        given_part: Whether such a value is among its arguments. It is made, so the call fails only if it is lost.
        of_items: Whether bytes that it returns are items that an `ItemPacker` packed.
    """

    __slots__ = ("done", "fetched", "given_part", "is_part", "needs", "of_items", "reference")

    def __init__(
        self,
        reference: Any,
        needs: Sequence[RayCall] = (),
        is_part: bool = False,
        given_part: bool = False,
        of_items: bool = False,
    ) -> None:
        self.reference, self.needs, self.is_part, self.given_part = reference, needs, is_part, given_part
        self.of_items, self.done = of_items, False
        self.fetched: tuple[Any] | None = None
        """The value, if it is here already."""

    def __deepcopy__(self, memo: Any) -> RayCall:
        return self  # every caller gets a result of its own

    def result(self) -> Any:
        """What the method returned, in arrays of this process; raises what it raised, with cause and traceback."""
        try:
            if self.fetched:
                (value,), self.fetched = self.fetched, None  # the first caller gets it, without a copy
            else:
                value = ray.get(self.reference, timeout=FETCH_SECONDS)
        except (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError) as error:
            self._check_needs()  # Ray gives the same error where it was the actor of an argument that died
            raise ActorLost(_first_line(error)) from None
        except (ray.exceptions.ObjectLostError, ray.exceptions.GetTimeoutError) as error:
            if self.given_part and isinstance(
                error, ray.exceptions.ObjectLostError
            ):  # its own result is never so large
                raise ArgumentFailed("an argument is lost") from ActorLost(_first_line(error))
            raise ActorLost(f"its result is lost: {_first_line(error)}") from None
        if isinstance(value, PackedError):
            raise value.unpacked()
        if self.of_items and type(value) is bytes:
            return pickle.loads(value)  # noqa: S301  (of this plan's own actor, like all that Ray brings)
        return owned(value)

    def _check_needs(self) -> None:
        for need in self.needs:
            ready, _ = ray.wait([need.reference], timeout=0)
            try:
                if ready:
                    ray.get(ready[0], timeout=FETCH_SECONDS)
            except (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError) as error:
                raise ArgumentFailed("an argument could not be made") from ActorLost(_first_line(error))


class RayActor:
    """Ray's handle on an actor, with its methods looked up once."""

    __slots__ = ("handle", "in_parts", "invoke", "next_items")

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.invoke, self.next_items = handle.invoke.remote, handle.next_items.remote
        self.in_parts: dict[int, Callable[..., Any]] = {}
        """By the number of parts."""


class RayEngine:
    """Actors as processes of a Ray cluster.

    Uses the cluster that this process is connected to, if it is, and else connects to one; only then ``close`` (or
    leaving it as a context) disconnects, which ends a local cluster with all of its processes.

    Args:
        address: ``"local"`` begins a cluster on this machine; ``"auto"`` or ``"host:port"`` joins one.
        num_cpus: Cores that a local cluster has to give away; all of the machine's when None.
        object_store_memory: Bytes of shared memory of a local cluster.
        log_to_driver: Whether what actors print is printed here too.

    Raises:
        BackendError: If the cluster cannot be begun or joined.
    """

    name = "ray"
    in_process = False

    def __init__(
        self,
        address: str = "local",
        num_cpus: int | None = None,
        object_store_memory: int = OBJECT_STORE_BYTES,
        log_to_driver: bool = False,
    ) -> None:
        self._began = not ray.is_initialized()
        if not self._began:
            return
        check_address(address)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told
        options: dict[str, Any] = {"address": address, "log_to_driver": log_to_driver, "logging_level": "ERROR"}
        if address == "local":
            options |= {
                "num_cpus": num_cpus or os.cpu_count(),
                "object_store_memory": object_store_memory,
                "include_dashboard": False,
            }
        try:
            with warnings.catch_warnings():
                # JAX warns of forks in a process with threads; the processes that Ray begins here run exec at once
                warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
                ray.init(**options)
        except Exception as error:
            raise BackendError(
                "Ray cannot be reached",
                where=f"RayEngine(address={address!r})",
                received=f"{type(error).__name__}: {_first_line(error)}",
                fix="see the cause; address='local' begins a cluster of its own",
            ) from error

    def create_actors(self, factories: Sequence[Callable[[], Any]], resources: Resources | None = None) -> list[Actor]:
        """Makes one process per factory; factories travel by Ray's cloudpickle.

        Raises:
            PlanError: If a factory cannot be pickled.
        """
        needs = resources or Resources()
        options: dict[str, Any] = {
            "num_cpus": needs.cpus,
            "num_gpus": needs.gpus,
            "resources": dict(needs.other),
            # a call may have changed its actor, so the plan decides what is repeated
            "max_restarts": 0,
            "max_task_retries": 0,
            # Ray would report the life of each call to its head, for its dashboard: a tenth of an item's cost
            "enable_task_events": False,
        }
        remote = ray.remote(**options)(RayHost)
        return [RayActor(remote.remote(_pickled(factory))) for factory in factories]

    def call(self, actor: Actor, method: str, *arguments: Any) -> RayCall:
        """Starts a call. What ``put`` gave and calls of other actors go from actor to actor, not through here."""
        if not arguments and method == "next_items":  # the usual case, and this runs for every item
            return RayCall(actor.next_items(), of_items=True)
        given, needs = _given(arguments)
        if places := _items_among(arguments):
            return RayCall(actor.handle.invoke_with_items.remote(places, method, *given), needs)
        if method == "next_items":
            return RayCall(actor.next_items(*given), needs, of_items=True)
        # a part is not kept as something needed: it is to go as soon as the call is done
        part = any(isinstance(argument, RayCall) and argument.is_part for argument in arguments)
        return RayCall(actor.invoke(method, *given), needs, given_part=part)

    def call_in_parts(self, actor: Actor, method: str, parts: int, *arguments: Any) -> list[RayCall]:
        """Starts a call. The object store has each value of its own."""
        remote = actor.in_parts.get(parts)
        if remote is None:
            remote = actor.in_parts[parts] = actor.handle.in_parts.options(num_returns=parts).remote
        given, needs = _given(arguments)
        if places := _items_among(arguments):
            opening = actor.handle.in_parts_with_items.options(num_returns=parts).remote
            references = opening(places, parts, method, *given)
        else:
            references = remote(parts, method, *given)
        first, *others = [RayCall(reference, is_part=True) for reference in references]
        first.needs = needs  # the others are used when it has come, and may be kept for longer than weights should be
        return [first, *others]

    def wait(self, calls: Sequence[Call], timeout: float | None = None) -> list[Call]:
        """Calls that are done: those that are known to be, else those that ``ray.wait`` finds."""
        mine: Sequence[RayCall] = calls  # type: ignore[assignment]
        if len(mine) == 1:  # the usual case, and this runs for every item
            (call,) = mine
            if not call.done:
                call.done = bool(ray.wait([call.reference], num_returns=1, timeout=timeout)[0])
            return [call] if call.done else []
        references = [call.reference for call in mine if not call.done]
        if len(references) < len(mine) or not mine:
            return [call for call in mine if call.done]
        ready, _ = ray.wait(references, num_returns=len(references) if timeout == 0 else 1, timeout=timeout)
        found: list[Call] = []
        for call in mine:
            if call.reference in ready:
                call.done = True
                found.append(call)
        return found

    def fetch(self, calls: Sequence[Call]) -> None:
        """Gets the values of calls with one request."""
        mine: Sequence[RayCall] = calls  # type: ignore[assignment]
        with contextlib.suppress(Exception):  # then each of them says by itself what it is
            for call, value in zip(
                mine, ray.get([call.reference for call in mine], timeout=FETCH_SECONDS), strict=True
            ):
                call.fetched = (value,)

    def put(self, value: Any) -> Any:
        """Puts a value into the object store, once for all actors."""
        return ray.put(value)

    def kill(self, actors: Sequence[Actor], grace: float = 0.0) -> None:
        """Ends the processes of actors."""
        if not ray.is_initialized():
            return
        if grace and actors:
            with contextlib.suppress(Exception):  # an actor that cannot close any more is ended without it
                closing = [actor.invoke("close") for actor in actors]
                ray.wait(closing, num_returns=len(closing), timeout=grace)
        for actor in actors:
            with contextlib.suppress(Exception):
                ray.kill(actor.handle, no_restart=True)

    def capacity(self) -> Mapping[str, float]:
        """All resources of the cluster."""
        return {name: float(amount) for name, amount in ray.cluster_resources().items()}

    def close(self) -> None:
        """Disconnects if this engine connected; a local cluster ends with all its processes."""
        if self._began and ray.is_initialized():
            ray.shutdown()
        self._began = False

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _given(arguments: Sequence[Any]) -> tuple[list[Any], list[RayCall]]:
    """What Ray takes for arguments, and the calls among them that may still fail."""
    given = [argument.reference if isinstance(argument, RayCall) else argument for argument in arguments]
    return given, [argument for argument in arguments if isinstance(argument, RayCall) and not argument.is_part]


def _items_among(arguments: Sequence[Any]) -> list[int]:
    """The places of arguments that may come to their actor as bytes."""
    return [place for place, given in enumerate(arguments) if isinstance(given, RayCall) and given.of_items]


def _pickled(factory: Callable[[], Any]) -> bytes:
    try:
        return cloudpickle.dumps(factory)
    except Exception as error:
        raise PlanError(
            "a factory cannot be pickled for the process of its worker",
            where="create_actors",
            received=f"{type(error).__name__}: {error}",
            fix="let the factory make environments and graphs itself, instead of holding ones that exist",
        ) from error


def _first_line(error: BaseException) -> str:
    lines: Iterator[str] = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)


def check_address(address: str, seconds: float = ADDRESS_SECONDS) -> None:
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
    """What is wrong with a cluster's answer to the question for its version; None if nothing is."""
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
