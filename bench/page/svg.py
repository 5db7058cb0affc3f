"""The few shapes that charts are made of, as text of SVG; colours are classes of the page's style."""

from __future__ import annotations

from html import escape


def text(x: float, y: float, words: str, css: str = "", anchor: str = "start") -> str:
    """One line of text, its baseline at `y`."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{escape(words)}</text>'


def rect(x: float, y: float, width: float, height: float, css: str) -> str:
    """A filled rectangle."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.0, width):.2f}" height="{height:.1f}" class="{css}"/>'


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{css}"/>'


def circle(x: float, y: float, radius: float, css: str) -> str:
    """A dot."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" class="{css}"/>'


def drawing(width: float, height: float, title: str, parts: list[str]) -> str:
    """Puts shapes together; `title` is for who cannot see them."""
    head = f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(title)}">'
    return "\n".join([head, *parts, "</svg>"])
