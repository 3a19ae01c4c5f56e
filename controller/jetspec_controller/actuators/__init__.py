"""Sends budgets to servers and reads them back."""

from .base import Actuator, ApplyResult, Outcome
from .sglang import SGLangActuator

__all__ = ["Actuator", "ApplyResult", "Outcome", "SGLangActuator"]
