"""Grafana's light theme: its colours by name, and the classic palette. Pure."""

from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb

PAGE, PANEL, BORDER = "#f4f5f5", "#ffffff", "#dfe1e5"
TEXT, WEAK_TEXT, GRID = "#24292e", "#6b7280", "#e5e7ea"

_HUES = {
    "red": ("#FFA6B0", "#FF7383", "#E02F44", "#F2495C", "#C4162A"),
    "orange": ("#FFCB7D", "#FFB357", "#FF780A", "#FF9830", "#FA6400"),
    "yellow": ("#FFF899", "#FFEE52", "#F2CC0C", "#FADE2A", "#E0B400"),
    "green": ("#C8F2C2", "#96D98D", "#56A64B", "#73BF69", "#37872D"),
    "blue": ("#C0D8FF", "#8AB8FF", "#3274D9", "#5794F2", "#1F60C4"),
    "purple": ("#DEB6F2", "#CA95E5", "#A352CC", "#B877D9", "#8F3BB8"),
}
_SHADES = ("super-light", "light", "semi-dark", "", "dark")
_OTHER = {
    "text": TEXT,
    "transparent": PANEL,
    "white": "#ffffff",
    "black": "#000000",
    "gray": "#8e8e8e",
    "grey": "#8e8e8e",
}
PALETTE = (
    "#56A64B", "#E0B400", "#3274D9", "#FF780A", "#E02F44", "#8F3BB8", "#37872D", "#1F60C4",
    "#B877D9", "#FA6400", "#C4162A", "#5794F2", "#73BF69", "#F2CC0C", "#A352CC", "#FF9830",
)  # fmt: skip


def named(color: str) -> str:
    """A colour of Grafana's (`dark-green`, `text`) or one that matplotlib knows, as the latter."""
    if color in _OTHER:
        return _OTHER[color]
    shade, _, hue = color.rpartition("-")
    if hue in _HUES and shade in _SHADES:
        return _HUES[hue][_SHADES.index(shade)]
    return color


_CONTINUOUS = {
    "BlYlRd": ("blue", "yellow", "red"),
    "GrYlRd": ("green", "yellow", "red"),
    "RdYlGr": ("red", "yellow", "green"),
    "YlRd": ("yellow", "red"),
    "BlPu": ("blue", "purple"),
    "YlBl": ("yellow", "blue"),
    "blues": ("white", "dark-blue"),
    "reds": ("white", "dark-red"),
    "greens": ("white", "dark-green"),
    "purples": ("white", "dark-purple"),
}


def continuous(mode: str, part: float) -> str | None:
    """The colour at `part` (0 to 1) of a mode such as `continuous-BlYlRd`; None for other modes."""
    stops = _CONTINUOUS.get(mode.removeprefix("continuous-"))
    if stops is None or not mode.startswith("continuous-"):
        return None
    scheme = LinearSegmentedColormap.from_list(mode, [named(stop) for stop in stops])
    return to_hex(scheme(min(1.0, max(0.0, part))))


def on(background: str) -> str:
    """A text colour that can be read on the background."""
    red, green, blue = to_rgb(background)
    return TEXT if 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 else "#ffffff"


def of_series(number: int) -> str:
    """The palette's colour of a panel's n-th series."""
    return PALETTE[number % len(PALETTE)]
