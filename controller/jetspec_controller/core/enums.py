"""Every named choice of the core: governors, signals, faults, reasons, clamps, actions."""

from enum import StrEnum


class Governor(StrEnum):
    """How the budget of a server is chosen."""

    MODEL = "model"  # minimise predicted seconds per token
    TABLE = "table"  # follow the hand-set {batch: budget} of the configuration
    PINNED = "pinned"  # keep `pinned_budget`
    OFF = "off"  # leave the server alone
    ADVISORY = "advisory"  # decide as `model`, never apply


class Signal(StrEnum):
    """An input that can be old or missing on its own."""

    LOAD = "load"  # running and waiting requests, token usage
    ARRIVALS = "arrivals"  # arrival rate, mean output length
    ROUNDS = "rounds"  # round counters: accept curve, seconds per round
    COST = "cost"  # round-cost gauges or file
    BUDGET = "budget"  # read-back through the admin API
    LATENCY = "latency"  # TPOT and TTFT percentiles


class Fault(StrEnum):
    """Why an input cannot be used. There is one value per cause that needs a different action."""

    MISSING = "missing"  # the server answered, the series is not there
    STALE = "stale"  # older than `max_age_s`
    NAN = "nan"  # not a number, infinite, or negative
    RESET = "reset"  # a counter went down without a new start time
    RESTARTED = "restarted"  # the process has a new start time
    FROZEN = "frozen"  # the server's own timestamp stands still
    DOWN = "down"  # `up` is 0, or the connection was refused
    TIMEOUT = "timeout"
    HTTP = "http"  # an HTTP status other than 2xx, 401, 403
    UNAUTHORISED = "unauthorised"  # 401 or 403
    PARSE = "parse"  # the body, or a value's type, is not what was asked for
    EMPTY = "empty"  # the query is right and matched nothing


class Reason(StrEnum):
    """The reason for a decision. Every decision has exactly one."""

    # the budget in force stays
    OPTIMAL = "optimal"  # no candidate is predicted to be faster
    WITHIN_TOLERANCE = "within_tolerance"  # a candidate is faster, by less than the band
    CONFIRMING = "confirming"  # a rise has not been wanted for enough ticks yet
    DWELL = "dwell"  # too soon after the last change
    PROBING = "probing"  # a probed budget is not measured yet
    KV_PRESSURE = "kv_pressure"  # KV usage above the high-water mark: no rise
    NOT_APPLIED = "not_applied"  # sent before, read-back still differs; sent again later
    OFF = "off"
    # a new budget or table
    FASTER_DOWN = "faster_down"
    FASTER_UP = "faster_up"
    TABLE_UPDATE = "table_update"  # entries of the published table moved
    PROBE = "probe"  # a budget nearby that may well be faster is tried
    PROBE_BACK = "probe_back"  # it was not
    OBJECTIVE = "objective"  # a TPOT or TTFT bound ruled the faster budget out
    OUT_OF_RANGE = "out_of_range"  # what is in force is not an allowed tier
    CONFIGURED_TABLE = "configured_table"
    PINNED = "pinned"
    # the server does not run what was decided
    RESTART_REAPPLY = "restart_reapply"
    DRIFT_REAPPLY = "drift_reapply"  # read-back differs from the last decision
    SECOND_WRITER = "second_writer"  # somebody else changes the budget again and again
    FALLBACK = "fallback"  # inputs unusable for longer than `hold_s`
    # an input is unusable: the budget in force is held, up to `hold_s`
    LOAD_MISSING = "load_missing"
    LOAD_STALE = "load_stale"
    LOAD_NAN = "load_nan"
    PRODUCER_FROZEN = "producer_frozen"
    COUNTER_RESET = "counter_reset"
    SERVER_RESTARTED = "server_restarted"
    SERVER_DOWN = "server_down"
    SOURCE_TIMEOUT = "source_timeout"
    SOURCE_HTTP = "source_http"
    SOURCE_UNAUTHORISED = "source_unauthorised"
    SOURCE_PARSE = "source_parse"
    SOURCE_EMPTY = "source_empty"
    BUDGET_UNKNOWN = "budget_unknown"  # no read-back, so neither tiers nor the budget in force
    NO_TIER_IN_RANGE = "no_tier_in_range"  # configuration and the server's tiers do not meet
    NO_ACCEPT_CURVE = "no_accept_curve"  # too few request rounds seen
    LATENCY_MISSING = "latency_missing"  # an objective is set, its histogram is not there
    NO_COST_CURVE = "no_cost_curve"  # neither gauges, file, nor phase counters


class Clamp(StrEnum):
    """A limit that changed the outcome; listed in the explanation."""

    MIN_BUDGET = "min_budget"
    MAX_BUDGET = "max_budget"
    STEP_UP = "step_up"
    STEP_DOWN = "step_down"
    EVIDENCE = "evidence"  # no further than what was measured, except to probe
    BATCH_LIMIT = "batch_limit"  # expected batch cut at the server's own limit
    OBJECTIVE = "objective"
    KV_PRESSURE = "kv_pressure"


class CostSource(StrEnum):
    """Where seconds per round come from, best first."""

    GAUGES = "gauges"  # jetspec_round_cost_seconds{rows}
    FILE = "file"  # a cost-model file of the configuration
    COUNTERS = "counters"  # round_seconds_total / rounds_total, built by `decide`


class Action(StrEnum):
    """What the actuator does with a decision."""

    HOLD = "hold"
    SET_BUDGET = "set_budget"
    SET_TABLE = "set_table"
