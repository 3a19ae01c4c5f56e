"""JetSpec causal parallel tree drafting for stock SGLang, as a plugin."""

__version__ = "0.1.0"
