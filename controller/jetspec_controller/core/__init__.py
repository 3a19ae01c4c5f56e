"""The pure core of the controller: observations in, decisions out, no I/O and no clock."""

from jetspec_controller.core.config import PolicyConfig
from jetspec_controller.core.decision import SECOND_WRITER_AFTER, decide
from jetspec_controller.core.enums import Action, Clamp, CostSource, Fault, Governor, Reason, Signal
from jetspec_controller.core.state import AcceptMemory, CostMemory, TargetState
from jetspec_controller.core.types import (
    RANK_EDGES,
    AcceptCurve,
    AcceptPoint,
    BudgetCounters,
    BudgetReadback,
    Candidate,
    CostCurve,
    CostPoint,
    Decision,
    Explanation,
    LatencyPercentiles,
    RoundCounters,
    SourceError,
    Table,
    TargetObservation,
)

__all__ = [
    "RANK_EDGES",
    "SECOND_WRITER_AFTER",
    "AcceptCurve",
    "AcceptMemory",
    "AcceptPoint",
    "Action",
    "BudgetCounters",
    "BudgetReadback",
    "Candidate",
    "Clamp",
    "CostCurve",
    "CostMemory",
    "CostPoint",
    "CostSource",
    "Decision",
    "Explanation",
    "Fault",
    "Governor",
    "LatencyPercentiles",
    "PolicyConfig",
    "Reason",
    "RoundCounters",
    "Signal",
    "SourceError",
    "Table",
    "TargetObservation",
    "TargetState",
    "decide",
]
