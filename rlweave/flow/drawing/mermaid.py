"""A picture of a plan as Mermaid text, which many Markdown viewers draw."""

from __future__ import annotations

from rlweave.flow.drawing.picture import PlanPicture
from rlweave.flow.operator import RunsAt

#: (fill, border) of each place, as in the SVG pictures.
COLOURS: dict[RunsAt, tuple[str, str]] = {
    "sources": ("#dbeafe", "#7aa7e0"),
    "driver": ("#f1f5f9", "#94a3b8"),
    "learner": ("#dcfce7", "#6fbf8b"),
    "elsewhere": ("#ffffff", "#94a3b8"),
}
_ARROWS = {
    "stream": ("--", "-->"),
    "parallel": ("==", "==>"),
    "message": ("-.", ".->"),
    "stored": ("-.", ".->"),
}


def to_mermaid(picture: PlanPicture) -> str:
    """Writes a picture as a Mermaid flowchart, from left to right."""
    lines = ["flowchart LR"]
    numbers = {box.name: f"n{number}" for number, box in enumerate(picture.boxes)}
    for box in picture.boxes:
        left, right = ("[(", ")]") if box.begins else ("[", "]")
        small = "".join(f"<br/><small>{_escaped(text)}</small>" for text in box.small)
        lines.append(f'  {numbers[box.name]}{left}"{_escaped(box.name)}{small}"{right}')
    for arrow in picture.arrows:
        begin, end = _ARROWS[arrow.kind]
        label = "<br/>".join(map(_escaped, arrow.labels))
        lines.append(f'  {numbers[arrow.source]} {begin} "{label}" {end} {numbers[arrow.target]}')
    for place in picture.places:
        fill, border = COLOURS[place]
        members = ",".join(numbers[box.name] for box in picture.boxes if box.place == place)
        lines += [f"  classDef {place} fill:{fill},stroke:{border},color:#1f2937", f"  class {members} {place}"]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "#quot;").replace("[", "&#91;").replace("]", "&#93;")
