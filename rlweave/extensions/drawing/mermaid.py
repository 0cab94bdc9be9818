"""A picture of a component graph as Mermaid text, which many Markdown viewers draw."""

from __future__ import annotations

from rlweave.extensions.drawing.dataflow import Picture
from rlweave.extensions.drawing.parts import Part, describe_variables

#: Begin and end of an arrow with a label, and an arrow without one.
_ARROWS = {"data": ("--", "-->", "-->"), "gradient": ("==", "==>", "==>"), "state": ("-.", ".->", "-.->")}
_LABELS = 4


def to_mermaid(picture: Picture) -> str:
    """Writes a picture as a Mermaid flowchart, from top to bottom."""
    return _Writer(picture).text()


class _Writer:
    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.several_places = len({part.place for part in picture.parts.values()} - {"host"}) > 1
        self.ids: dict[str, str] = {}
        self.lines = ["flowchart TB"]
        self.classes: dict[str, list[str]] = {}

    def text(self) -> str:
        picture = self.picture
        for name, title in picture.methods.items():
            self.lines.append(f'  {self._id(f"in:{name}")}(["{_escape(title)}"])')
            self.classes.setdefault("method", []).append(self._id(f"in:{name}"))
        self._part(picture.parts[picture.root], "  ")
        ends = {flow.target for flow in picture.flows}
        for name in picture.methods:
            if f"out:{name}" in ends:
                self.lines.append(f'  {self._id(f"out:{name}")}(["{_escape(name)} returns"])')
                self.classes.setdefault("result", []).append(self._id(f"out:{name}"))
        for flow in picture.flows:
            if f"{flow.target}/".startswith(f"{flow.source}/") or f"{flow.source}/".startswith(f"{flow.target}/"):
                continue  # Mermaid cannot link a box to what is in it
            labels = flow.labels[:_LABELS]
            if len(flow.labels) > _LABELS:
                labels = [*flow.labels[: _LABELS - 1], f"+{len(flow.labels) - _LABELS + 1} more"]
            begin, end, plain = _ARROWS[flow.kind]
            text = f' {begin} "{_escape("<br/>".join(labels))}" {end} ' if labels else f" {plain} "
            self.lines.append(f"  {self._id(flow.source)}{text}{self._id(flow.target)}")
        self.lines += [
            "  classDef device fill:#dbeafe,stroke:#7aa7e0,color:#1f2937",
            "  classDef host fill:#ffedd0,stroke:#dba44e,color:#1f2937",
            "  classDef frozen stroke-dasharray:5 3",
            "  classDef method fill:#2563eb,stroke:#2563eb,color:#ffffff",
            "  classDef result fill:#ffffff,stroke:#2563eb,color:#2563eb",
            "  classDef function fill:#ffffff,stroke:#94a3b8,color:#1f2937",
            "  classDef container fill:#f8fafc,stroke:#cbd5e1,color:#1f2937",
        ]
        self.lines += [f"  class {','.join(ids)} {name}" for name, ids in self.classes.items()]
        return "\n".join(self.lines) + "\n"

    def _id(self, endpoint: str) -> str:
        return self.ids.setdefault(endpoint, f"n{len(self.ids)}")

    def _part(self, part: Part, indent: str) -> None:
        small = [text for text in (part.class_name, describe_variables(part)) if text]
        small += [f"uses {other}" for other in part.uses]
        small += [f"on {part.place}"] if self.several_places and not part.children else []
        label = "<br/>".join([f"<b>{part.scope}</b>", *small])
        name = self._id(part.path)
        if part.children or part.path == self.picture.root:
            self.lines.append(f'{indent}subgraph {name}["{_escape(label)}"]')
            for function in part.functions:
                own = self._id(f"{part.path}#{function}")
                self.lines.append(f'{indent}  {own}["{_escape(function)}"]')
                self.classes.setdefault("function", []).append(own)
            for child in part.children:
                self._part(self.picture.parts[child], indent + "  ")
            self.lines.append(f"{indent}end")
            self.classes.setdefault("container", []).append(name)
        else:
            self.lines.append(f'{indent}{name}["{_escape(label)}"]')
            self.classes.setdefault("host" if part.place == "host" else "device", []).append(name)
        if part.kind == "frozen":
            self.classes.setdefault("frozen", []).append(name)


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "#quot;")
