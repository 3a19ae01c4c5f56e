"""Sends budgets to servers and reads them back."""

from jetspec_controller.actuators.base import Actuator, ApplyResult, Outcome
from jetspec_controller.actuators.sglang import SGLangActuator

__all__ = ["Actuator", "ApplyResult", "Outcome", "SGLangActuator"]
