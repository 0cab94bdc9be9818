"""Sub-components however they come into an attribute: they are trained, copied and placed as those assigned at once."""

import collections
import functools
import types

import numpy as np
import pytest

from rlweave.errors import BuildError
from rlweave.graph import Component, api, build, shared
from tests.graph.toys import BACKENDS, SCALAR, Cell, Linear, built, rows


def _appended(owner, part):
    owner.parts = []
    owner.parts.append(part)


def _extended(owner, part):
    owner.parts = []
    owner.parts += [part]


def _through_another_name(owner, part):
    parts = [Cell(scope="first")]
    owner.parts = parts
    parts.append(part)


def _into_a_dict(owner, part):
    owner.parts = {}
    owner.parts["part"] = part


def _into_an_ordered_dict(owner, part):
    owner.parts = collections.OrderedDict()
    owner.parts["part"] = part


def _into_the_depth(owner, part):
    owner.parts = [{"a": []}, ()]
    owner.parts[0]["a"].append(({"b": part},))


def _by_name(owner, part):
    setattr(owner, "part", part)  # noqa: B010 - as a user writes it who computes the name


def _past_setattr(owner, part):
    owner.__dict__["part"] = part


def _in_place_of_another(owner, part):
    owner.parts = [Cell(scope="first"), Cell(scope="second")]
    owner.parts[1] = part


_WAYS = (
    _appended,
    _extended,
    _through_another_name,
    _into_a_dict,
    _into_an_ordered_dict,
    _into_the_depth,
    _by_name,
    _past_setattr,
    _in_place_of_another,
)


class _Holder(Component):
    """Gets a cell in some way, and moves it."""

    def __init__(self, way, scope="net"):
        super().__init__(scope)
        way(self, Cell(1.0, scope="part"))

    def _part(self):
        return next(c for c in self.sub_components() if c.scope.startswith("part"))

    @api
    def read(self):
        return self._part().read()

    @api
    def add(self, x):
        self._part().add(x)


class _WithTarget(Component):
    def __init__(self, way):
        super().__init__("root")
        self.net = _Holder(way)
        self.target = self.net.copy("target", trainable=False)

    @api
    def move(self, x):
        self.net.add(x)
        return self.net.read(), self.target.read()

    @api
    def count(self):
        assert [v.path for v in self.variables()] == ["root/net/" + p for p in self.net.variables().relative()]
        return len(self.target.variables(trainable=False))


@pytest.mark.parametrize("way", _WAYS)
def test_a_copy_never_shares_what_came_into_an_attribute_later(way):
    root = _WithTarget(way)
    executor = built(root, {"x": SCALAR})
    online, target = executor.move(np.float32(2.0))
    assert (float(online), float(target)) == (3.0, 1.0)
    assert executor.count() >= 1
    assert any(path.startswith("root/net/part") or "/part/" in path for path in executor.get_weights())
    # a second copy, of what was built already
    again = root.net.copy("again")
    assert not set(map(id, again.tree())) & set(map(id, root.tree()))
    assert [c.scope for c in again.tree()][1:] == [c.scope for c in root.net.tree()][1:]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_target_network_with_appended_layers_stays_when_the_online_network_moves(backend):
    class Net(Component):
        def __init__(self):
            super().__init__("net")
            self.layers = []
            for _ in range(2):
                self.layers.append(Linear(3, "dense"))

        @api
        def call(self, x):
            for layer in self.layers:
                x = layer.call(x)
            return x

    class Root(Component):
        def __init__(self):
            super().__init__("root")
            self.net = Net()
            self.target = self.net.copy("target", trainable=False)

        @api
        def both(self, x):
            return self.net.call(x), self.target.call(x)

    executor = built(Root(), {"x": rows(3)}, backend)
    x = np.ones((2, 3), np.float32)
    online, target = executor.both(x)
    np.testing.assert_array_equal(online, target)
    weights = executor.get_weights("root/net")
    assert sorted(weights) == [f"root/net/dense-{i}/{name}" for i in (0, 1) for name in ("bias", "kernel")]
    executor.set_weights({path: value + 1 for path, value in weights.items()})
    moved, still = executor.both(x)
    assert np.abs(moved - online).min() > 0.1
    np.testing.assert_array_equal(still, target)


def test_what_was_removed_or_replaced_is_no_part_any_more_and_can_get_another_owner():
    owner = _Holder(_in_place_of_another)
    owner.parts.append(Cell(scope="third"))
    assert [c.path for c in owner.tree()] == ["net", "net/first", "net/part", "net/third"]
    first = owner.parts.pop(0)
    replaced, owner.parts[0] = owner.parts[0], Cell(scope="new")
    assert [c.path for c in owner.tree()] == ["net", "net/new", "net/third"]
    other = _Holder(_appended, "other")
    other.parts += [first, replaced]
    assert [c.path for c in other.tree()] == ["other", "other/part", "other/first", "other/part"]
    # and what nobody has any more is built as it is
    alone = owner.parts.pop()
    assert list(built(alone, methods=["read"]).get_weights()) == ["third/content"]


def test_a_component_that_two_lists_have_is_refused_as_two_attributes_are():
    one, two, part = _Holder(_appended, "one"), _Holder(_appended, "two"), Cell(scope="part")
    one.parts.append(part)
    two.parts.append(part)
    assert len(one.sub_components()) == 2
    with pytest.raises(BuildError, match="a component has two owners"):
        two.sub_components()


def test_a_shared_trunk_stays_shared_wherever_it_was_put_and_whoever_is_looked_at_first():
    trunk = Cell(scope="trunk")
    head = _Holder(_appended, "head")
    head.trunk = shared(trunk)
    head.parts.append(shared(trunk))
    head.more = ({"trunk": shared(trunk)},)
    target = head.copy("target")  # nobody owns the trunk yet
    root = _Holder(_appended, "root")
    root.head, root.target = head, target
    root.parts.append(trunk)
    assert [c.path for c in root.tree()] == ["root", "root/part", "root/trunk", "root/head", *_tail("root")]
    for user in (head, target):
        assert user.trunk is user.parts[-1] is user.more[0]["trunk"] is trunk


def _tail(root):
    return [f"{root}/head/part", f"{root}/target", f"{root}/target/part"]


@pytest.mark.parametrize("trunk_first", [False, True])
def test_a_copy_of_users_and_owner_of_a_trunk_has_a_trunk_of_its_own(trunk_first):
    class Both(Component):
        def __init__(self):
            super().__init__("both")
            trunk, user = Cell(scope="trunk"), Component("user")
            user.trunk = shared(trunk)
            parts = {"trunk": trunk, "user": user} if trunk_first else {"user": user, "trunk": trunk}
            for name, part in parts.items():
                setattr(self, name, part)

    both = Both()
    copy = both.copy()
    assert copy.user.trunk is copy.trunk
    assert copy.trunk is not both.trunk


def test_containers_of_a_copy_are_its_own():
    trunk = Cell(scope="trunk")
    user = Component("user")
    user.trunks = [shared(trunk)]
    copy = user.copy()
    copy.trunks.append(Cell())
    assert len(user.trunks) == 1


_HIDING = {
    "a set": lambda part: {part},
    "a deque": lambda part: collections.deque([part]),
    "a dict": lambda part: {"a": {part}},
    "a partial": lambda part: functools.partial(part.call, 1),
    "a BoundMethod": lambda part: part.call,
    "a function": lambda part: lambda x: part.call(x),
    "a ndarray": lambda part: np.array([part, None], object),
    "a SimpleNamespace": lambda part: types.SimpleNamespace(deep=[part]),
}


@pytest.mark.parametrize("where", sorted(_HIDING))
def test_a_component_that_nobody_can_see_is_refused_by_builds_and_copies(where):
    owner = _Holder(_appended)
    owner.extra = _HIDING[where](Linear(2, "hidden"))
    with pytest.raises(BuildError, match="a copy would share it") as error:
        owner.copy()
    with pytest.raises(BuildError, match="its variables would belong to nobody") as again:
        build(owner, {"x": rows(1)}, methods=["read"])
    for message in (str(error.value), str(again.value)):
        assert "where:    net.extra" in message
        assert f"received: Linear 'hidden' in {where}" in message
        assert "fix:      keep components in lists, tuples or dicts" in message


@pytest.mark.parametrize("value", [lambda part: part, lambda part: [part], lambda part: {"a": (part,)}])
def test_a_component_in_a_private_attribute_is_refused(value):
    owner = _Holder(_appended)
    owner._extra = value(Linear(2, "hidden"))
    with pytest.raises(BuildError, match="a component is in a private attribute") as error:
        build(owner, methods=["read"])
    assert "fix:      name the attribute 'extra'" in str(error.value)
    with pytest.raises(BuildError, match="a component is in a private attribute"):
        owner.copy()


def test_a_function_over_a_component_itself_can_be_built_and_not_be_copied():
    owner = _Holder(_appended)
    owner.again = lambda: owner.read()
    built(owner, methods=["read"]).read()
    with pytest.raises(BuildError, match="a copy would share it"):
        owner.copy()
    # what reaches no component may be anything
    owner.again = "/".join
    owner.table = {"plain": {1, 2}, "call": functools.partial(max, 1)}
    assert owner.copy().table["plain"] == {1, 2}


def test_a_sub_component_that_create_variables_appends_is_refused():
    class Late(Component):
        def __init__(self):
            super().__init__("late")
            self.parts = []

        def create_variables(self):
            self.parts.append(Cell())

        @api
        def call(self):
            return self.parts[0].read()

    with pytest.raises(BuildError, match="a sub-component was made in create_variables"):
        built(Late())
