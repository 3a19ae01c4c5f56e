"""The embedded target, SmolLM2-135M-Instruct, as a Hugging Face folder in the cache."""

from jetspec_sglang.embedded.target import EmbeddedError, cached_path, target_path

__all__ = ["EmbeddedError", "cached_path", "target_path"]
