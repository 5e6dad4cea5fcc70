"""Stage colours as CSS variables, in a light and a dark set, each with the ink that reads on it."""

from __future__ import annotations

from tailtrace.stages import STAGES, UNEXPLAINED, UNEXPLAINED_DARK, UNEXPLAINED_LIGHT

_LIGHT_INK, _DARK_INK = "#ffffff", "#000000"


def stage_css() -> str:
    """`:root{--stage-queue:#...;--ink-queue:#...}` for light and `[data-mantine-color-scheme=dark]`."""
    light = [(stage.name, stage.light) for stage in STAGES] + [(UNEXPLAINED, UNEXPLAINED_LIGHT)]
    dark = [(stage.name, stage.dark) for stage in STAGES] + [(UNEXPLAINED, UNEXPLAINED_DARK)]
    return f":root{{{_variables(light)}}}[data-mantine-color-scheme=dark]{{{_variables(dark)}}}"


def _variables(colours: list[tuple[str, str]]) -> str:
    return "".join(f"--stage-{name}:{colour};--ink-{name}:{ink_on(colour)};" for name, colour in colours)


def ink_on(colour: str) -> str:
    """White or near-black, whichever contrasts more with `colour` (WCAG 2 relative luminance)."""
    return max((_LIGHT_INK, _DARK_INK), key=lambda ink: contrast(ink, colour))


def contrast(one: str, other: str) -> float:
    """WCAG 2 contrast ratio of two #rrggbb colours, 1 to 21."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """WCAG 2 relative luminance of #rrggbb."""
    red, green, blue = (_linear(int(colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else float(((channel + 0.055) / 1.055) ** 2.4)
