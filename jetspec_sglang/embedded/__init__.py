"""The embedded target, SmolLM2-135M-Instruct, as a Hugging Face folder in the cache; and its head."""

from jetspec_sglang.embedded.head import head_path
from jetspec_sglang.embedded.target import EmbeddedError, cached_path, target_path

__all__ = ["EmbeddedError", "cached_path", "head_path", "target_path"]
