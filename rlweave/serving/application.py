"""The ASGI application: `POST /act`, `GET /`, `GET /health`.

A request holds all that its answer depends on, the state of a recurrent policy included, so that any number of clients
and servers may be mixed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import rlweave
from rlweave.agents.trained_policy import TrainedPolicy
from rlweave.errors import RlweaveError, SpaceError, nearest
from rlweave.serving.json_values import array_from_json, batch_from_json, rows_to_json, value_from_json, value_to_json
from rlweave.spaces.gymnasium_json import gymnasium_to_json
from rlweave.strict_json import to_json
from rlweave.tree import flatten_tree, unflatten_like

#: Keys of a request; `observations` is a batch, and so are masks, state and episode_start beside it.
FIELDS = ("observation", "observations", "deterministic", "mask", "state", "episode_start", "policy")

#: Number of characters of a wrong value that an answer repeats.
_SHOWN = 200


def make_application(policies: TrainedPolicy | Mapping[str, TrainedPolicy]) -> Starlette:
    """An ASGI application for policies from `rlweave.load`.

    `POST /act` takes an object with `observation`, a value of the space, or `observations`, a list of them, and answers
    with `action` or `actions`. Optional are `deterministic` (true), `mask` (of a policy that was trained with masks of
    the infos), `policy` (a name, where there are several), and of recurrent policies `state` (what the answer to the
    step before had) and `episode_start`. What does not fit is answered with 422 and an object `error`, which has
    `what`, `where`, `received` and `fix`.

    Args:
        policies: One policy, or several by name.
    """
    service = _Service(policies)
    routes = [
        Route("/act", service.act, methods=["POST"]),
        Route("/", service.describe, methods=["GET"]),
        Route("/health", _health, methods=["GET"]),
    ]
    return Starlette(routes=routes)


async def _health(request: Request) -> Response:
    return _answer({"status": "ok"})


class _Service:
    def __init__(self, policies: TrainedPolicy | Mapping[str, TrainedPolicy]) -> None:
        self._one = policies if isinstance(policies, TrainedPolicy) else None
        self._policies = dict(policies) if isinstance(policies, Mapping) else {}

    async def describe(self, request: Request) -> Response:
        """The description of the served policies: spaces as JSON, and the form of requests."""
        about: dict[str, Any] = {"rlweave": rlweave.__version__, "act": "POST /act", "fields": list(FIELDS)}
        if self._one is not None:
            return _answer({**about, **_description(self._one)})
        return _answer({**about, "policies": {name: _description(policy) for name, policy in self._policies.items()}})

    async def act(self, request: Request) -> Response:
        """The answer to one request; acting takes less time than handing it to a thread would."""
        try:
            asked = json.loads(await request.body())
        except (ValueError, RecursionError) as error:  # the latter of JSON that is nested too deeply
            return _refused(SpaceError("the request is not JSON", received=str(error), fix="send a JSON object"), 400)
        try:
            return _answer(self._act(asked))
        except RlweaveError as error:
            return _refused(error, 422)

    def _act(self, asked: Any) -> dict[str, Any]:
        if not isinstance(asked, dict):
            raise SpaceError("the request is no object", received=type(asked).__name__, fix='{"observation": ...}')
        unknown = sorted(asked.keys() - set(FIELDS))
        if unknown:
            raise SpaceError("unknown field", received=repr(unknown[0]), fix=nearest(unknown[0], FIELDS))
        if ("observation" in asked) == ("observations" in asked):
            raise SpaceError(
                "one observation or a batch of them is needed",
                received=f"fields {sorted(asked)}",
                fix='{"observation": ...} or {"observations": [...]}',
            )
        policy = self._policy(asked.get("policy"))
        rows = None if "observation" in asked else len(_rows(asked["observations"], "observations"))
        if rows == 0:
            return {"actions": []}
        if rows is None:
            observation = value_from_json(policy.observation_space, asked["observation"])
        else:
            observation = batch_from_json(policy.observation_space, asked["observations"])
        options: dict[str, Any] = {
            "deterministic": _flag(asked.get("deterministic", True), "deterministic"),
            "mask": _mask(asked),
        }
        if not policy.recurrent:
            for field in ("state", "episode_start"):
                if field in asked:
                    raise SpaceError("this policy carries no state", where=field, fix="leave the field out")
            action = policy.act(observation, **options)
            return {"action": value_to_json(action)} if rows is None else {"actions": rows_to_json(action, rows)}
        before, start = _state(policy, asked, rows), _starts(asked, rows)
        action, after = policy.act_with_state(observation, before, episode_start=start, **options)
        state = {path: x[0] if rows is None else x for path, x in flatten_tree(after).items()}
        found = {"action": value_to_json(action)} if rows is None else {"actions": rows_to_json(action, rows)}
        return {**found, "state": value_to_json(state)}

    def _policy(self, name: Any) -> TrainedPolicy:
        if self._one is not None:
            if name is not None:
                raise SpaceError("there is one policy", where="policy", received=repr(name), fix="leave the field out")
            return self._one
        if not isinstance(name, str) or name not in self._policies:
            raise SpaceError(
                "there are several policies, and none of this name",
                where="policy",
                received=repr(name),
                fix=nearest(str(name), self._policies),
            )
        return self._policies[name]


def _rows(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise SpaceError("a batch is a list", where=where, received=type(value).__name__, fix="one entry for each row")
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise SpaceError("true or false is expected here", where=where, received=repr(value))
    return value


def _mask(asked: Mapping[str, Any]) -> np.ndarray | None:
    return array_from_json(asked["mask"], "mask", "booleans, one for each action") if "mask" in asked else None


def _starts(asked: Mapping[str, Any], rows: int | None) -> Any:
    if "episode_start" not in asked:
        return None
    start = array_from_json(asked["episode_start"], "episode_start", "a boolean for each row")
    if start.shape != (() if rows is None else (rows,)) or start.dtype != np.bool_:
        raise SpaceError(
            "true or false is expected for each row", where="episode_start", received=str(asked["episode_start"])
        )
    return start.reshape(-1)


def _state(policy: TrainedPolicy, asked: Mapping[str, Any], rows: int | None) -> Any:
    """The recurrent state before the step, nested (B, ...); None at the beginning."""
    given = asked.get("state")
    if given is None:
        return None
    first = policy.initial_state(rows or 1)
    known = flatten_tree(first)
    if not isinstance(given, dict) or given.keys() != known.keys():
        raise SpaceError("another state is expected", where="state", fix=f"what the step before had: {sorted(known)}")
    arrays = {}
    for path, like in known.items():
        array = array_from_json(given[path], f"state/{path}", str(like.shape)).astype(like.dtype)
        array = array[None] if rows is None else array
        if not np.all(np.isfinite(array)):
            raise SpaceError("a state holds NaN or infinity", where=f"state/{path}", fix="what the step before had")
        if array.shape != like.shape:
            raise SpaceError(
                "an array has another shape", where=f"state/{path}", received=str(array.shape), fix=str(like.shape)
            )
        arrays[path] = array
    return unflatten_like(first, arrays)


def _description(policy: TrainedPolicy) -> dict[str, Any]:
    return {
        "agent": policy.agent.name,
        "environment": policy.environment.get("id"),
        "backend": policy.backend,
        "recurrent": policy.recurrent,
        "info_mask": policy.info_mask,
        "observation_space": gymnasium_to_json(policy.observation_space),
        "action_space": gymnasium_to_json(policy.action_space),
    }


def _answer(content: dict[str, Any], status: int = 200) -> Response:
    return Response(to_json(content), status, media_type="application/json")


def _refused(error: RlweaveError, status: int) -> Response:
    received = error.received if len(error.received) <= _SHOWN else f"{error.received[:_SHOWN]}..."
    fields = {"what": error.what, "where": error.where, "received": received, "fix": error.fix}
    return _answer({"error": {name: text for name, text in fields.items() if text}}, status)
