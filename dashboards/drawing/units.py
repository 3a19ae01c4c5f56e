"""Numbers as Grafana writes them, by its unit ids. Pure.

An id that is not known here is written after the number, which is what Grafana does too.
"""

import math
from datetime import UTC, datetime

_DECIMAL = ("", "K", "M", "G", "T")
_SHORT = ("", " K", " Mil", " Bil", " Tri")
_BINARY = (" B", " KiB", " MiB", " GiB", " TiB")
_DECIMAL_BYTES = (" B", " kB", " MB", " GB", " TB")
_BYTES = {"bytes": 0, "kbytes": 1, "mbytes": 2, "gbytes": 3, "tbytes": 4}
_COUNTS = {"reqps": "req/s", "rps": "rd/s", "ops": "ops/s", "cps": "c/s", "iops": "io/s",
           "eps": "evt/s", "mps": "msg/s", "wps": "wr/s", "opm": "ops/m", "cpm": "c/m",
           "rpm": "rd/m", "wpm": "wr/m"}  # fmt: skip
_IN_SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "dtdurations": 1.0, "dtdurationms": 1e-3,
               "m": 60.0, "h": 3600.0, "d": 86400.0}  # fmt: skip
_TIMES = ((1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h"),
          (86400.0, "day"), (604800.0, "week"))  # fmt: skip
_BOOLEANS = {"bool": ("True", "False"), "bool_yes_no": ("Yes", "No"), "bool_on_off": ("On", "Off")}


def text(value: float | str | None, unit: str | None = None, decimals: int | None = None) -> str:
    """The value in its unit; decimals None means as many as three digits need."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, str):
        return value
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    unit = unit or "none"
    if unit in ("none", "", "string", "number"):
        return digits(value, decimals)
    if unit == "short":
        return _scaled(value, 1000.0, _SHORT, decimals)
    if unit == "percentunit":
        return f"{digits(value * 100, decimals)}%"
    if unit == "percent":
        return f"{digits(value, decimals)}%"
    if unit in _IN_SECONDS:
        return _duration(value * _IN_SECONDS[unit], decimals)
    if unit in _COUNTS:
        return f"{_scaled(value, 1000.0, _DECIMAL, decimals)} {_COUNTS[unit]}"
    if (step := _BYTES.get(unit)) is not None:
        return _scaled(value * 1024.0**step, 1024.0, _BINARY, decimals)
    if (step := _BYTES.get(unit.removeprefix("dec"))) is not None:
        return _scaled(value * 1000.0**step, 1000.0, _DECIMAL_BYTES, decimals)
    if unit in _BOOLEANS:
        return _BOOLEANS[unit][value == 0]
    if unit.startswith("dateTime"):
        moment = datetime.fromtimestamp(value / 1000, UTC)
        return moment.strftime("%Y-%m-%d %H:%M:%S")
    kind, colon, rest = unit.partition(":")
    if colon and kind == "suffix":
        return f"{digits(value, decimals)} {rest.strip()}"
    if colon and kind == "prefix":
        return f"{rest}{digits(value, decimals)}"
    if colon and kind == "si":
        return f"{_scaled(value, 1000.0, _DECIMAL, decimals)} {rest}"
    return f"{digits(value, decimals)} {unit}"


def digits(value: float, decimals: int | None = None) -> str:
    """A plain number: `decimals` of them, or three significant digits."""
    if decimals is not None:
        return f"{value:.{decimals}f}"
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    shown = f"{value:.{min(places, 9)}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def _scaled(value: float, base: float, names: tuple[str, ...], decimals: int | None) -> str:
    step = 0
    while abs(value) >= base and step < len(names) - 1:
        value, step = value / base, step + 1
    return f"{digits(value, decimals)}{names[step]}"


def _duration(seconds: float, decimals: int | None) -> str:
    if seconds == 0:
        return "0 s"
    size, name = _TIMES[0]
    for size_, name_ in _TIMES:
        if abs(seconds) >= size_:
            size, name = size_, name_
    return f"{digits(seconds / size, decimals)} {name}"
