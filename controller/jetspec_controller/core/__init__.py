"""The pure core of the controller: observations in, decisions out, no I/O and no clock."""

from .config import PolicyConfig
from .decision import SECOND_WRITER_AFTER, decide
from .enums import Action, Clamp, CostSource, Fault, Governor, Reason, Signal
from .state import AcceptMemory, CostMemory, TargetState
from .types import (
    RANK_EDGES,
    AcceptCurve,
    AcceptPoint,
    BudgetCounters,
    BudgetState,
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
    "BudgetState",
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
