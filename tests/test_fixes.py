"""What errors tell their reader to do can be done: options, settings and arguments that a fix names are there."""

import ast
import re
from pathlib import Path

import click
import pytest
import typer

import rlweave
from rlweave.algorithms.registry import algorithm_names, get_algorithm
from rlweave.cli.main import app
from rlweave.settings.config import describe_settings

PACKAGE = Path(rlweave.__file__).parent


def texts_of(node):
    """The words of a fix; what is filled in is a blank, and parts of a choice stand apart."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "\0" for part in node.values]
        inner = [text for part in node.values if isinstance(part, ast.FormattedValue) for text in texts_of(part.value)]
        return ["".join(parts), *inner]
    return [text for child in ast.iter_child_nodes(node) for text in texts_of(child)]


@pytest.fixture(scope="module")
def sources():
    """The syntax tree of each file; not of the module, since each process that runs tests imports it."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


@pytest.fixture(scope="module")
def fixes(sources):
    """Where a fix stands, and its text."""
    return [
        (f"{path.relative_to(PACKAGE)}:{node.value.lineno}", text)
        for path, tree in sources.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "fix"
        for text in texts_of(node.value)
    ]


@pytest.fixture(scope="module")
def settings():
    return {row.key for name in algorithm_names() for row in describe_settings(get_algorithm(name).config_class)}


def sections(keys):
    """The keys, and those of the sections that hold them."""
    return {".".join(key.split(".")[:length]) for key in keys for length in range(1, key.count(".") + 2)}


def test_options_of_the_command_line_exist(fixes):
    root = typer.main.get_command(app)
    with click.Context(root) as context:
        commands = [root, *(root.get_command(context, name) for name in root.list_commands(context))]
    known = {
        name for command in commands for option in command.params for name in (*option.opts, *option.secondary_opts)
    }
    named = [(where, option) for where, text in fixes for option in re.findall(r"(?<![\w=-])--[a-z][a-z-]*", text)]
    assert len(named) > 10
    assert [one for one in named if one[1] not in known] == []


def test_settings_exist(settings, fixes):
    named = [(where, key) for where, text in fixes for key in re.findall(r"--set '?([a-z_.]+)=", text) if key != "key"]
    named += [(where, key) for where, text in fixes for key in re.findall(r"\bagent\.[a-z_]+(?==)", text)]
    assert len(named) > 8
    assert [one for one in named if one[1] not in sections(settings)] == []


def test_arguments_exist(settings, sources, fixes):
    functions = [node for tree in sources.values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    known = {argument.arg for node in functions for argument in (*node.args.args, *node.args.kwonlyargs)}
    known |= {key.rpartition(".")[2] for key in sections(settings)}
    known |= {"options", "fullgraph", "key", "a", "b"}  # of Gymnasium's reset, of torch.compile, and of examples
    named = [(where, key) for where, text in fixes for key in re.findall(r"(?<![\w.\"'-])([a-z]\w*)=(?!=)", text)]
    assert len(named) > 30
    assert [one for one in named if one[1] not in known] == []
