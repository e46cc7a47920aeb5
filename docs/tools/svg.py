"""Draw SVG diagrams of boxes, arrows and text, readable on light and on dark pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

GREEN, BLUE, RED, AMBER, GREY = "#0b6e4f", "#2f5f9e", "#b5482f", "#9a6a0c", "#59636e"
# The colour of lines and text outside boxes: readable on white and on black.
INK = "#7a858f"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


@dataclass
class Picture:
    """An SVG picture; later shapes are drawn above earlier ones."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def box(
        self, x: float, y: float, width: float, height: float, head: str, *lines: str, fill: str
    ) -> None:
        """Draw a filled box with a centred heading and smaller lines below it."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7" '
            f'fill="{fill}"/>'
        )
        middle = x + width / 2
        top = y + height / 2 - 8 * len(lines) + 5
        self.text(middle, top, head, size=14, fill="#fff", weight=600)
        for number, line in enumerate(lines, 1):
            self.text(middle, top + 17 * number, line, size=11.5, fill="#eef3f1")

    def frame(self, x: float, y: float, width: float, height: float, label: str) -> None:
        """Draw a dashed outline with a label, around a group of boxes."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="10" fill="none" '
            f'stroke="{INK}" stroke-width="1.2" stroke-dasharray="5 4"/>'
        )
        self.text(x + 12, y + 19, label, size=12.5, fill=INK, anchor="start", weight=600)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 12,
        fill: str = INK,
        anchor: str = "middle",
        weight: int = 400,
    ) -> None:
        """Draw a line of text."""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" fill="{fill}" '
            f'text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'
        )

    def arrow(self, *points: tuple[float, float], label: str = "", at: str = "middle") -> None:
        """Draw an arrow through points, with a label at the middle between its ends."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="1.6" '
            'marker-end="url(#head)"/>'
        )
        if label:
            (x1, y1), (x2, y2) = points[0], points[-1]
            shift = {"middle": 0, "start": 8, "end": -8}[at]
            self.text((x1 + x2) / 2 + shift, (y1 + y2) / 2 + 4, label, size=11.5, anchor=at)

    def line(self, x1: float, y1: float, x2: float, y2: float, *, dash: str = "") -> None:
        """Draw a thin line."""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{INK}" '
            f'stroke-width="1"{dashes}/>'
        )

    def bar(self, x: float, y: float, width: float, height: float, *, fill: str) -> None:
        """Draw a bar of a plot."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{height:g}" rx="2" '
            f'fill="{fill}"/>'
        )

    def to_text(self) -> str:
        """Return the content of the SVG file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" '
            f'aria-label="{escape(self.title)}" font-family="{FONT}">'
        )
        marker = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>'
        )
        return "\n".join([head, f"<title>{escape(self.title)}</title>", marker, *self.parts]) + (
            "\n</svg>\n"
        )
