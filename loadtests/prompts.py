"""The prompts: those of a set in a seeded order, or prompts of a given length.

Contract: `Prompts.text(index, tokens)` is a pure function of its arguments once the set is loaded,
so that every worker and every run of a seed asks the same. I/O: the file of the set.
"""

from __future__ import annotations

import random

from jetspec_sglang.evaluation.datasets import load_prompts
from loadtests.config import ConfigError, LoadConfig

_WORDS_PER_TOKEN = 0.85
"""Words per token of common English text. `usage.prompt_tokens` in the report shows the real
number."""


class Prompts:
    """The prompts of one load test."""

    def __init__(self, config: LoadConfig) -> None:
        """ConfigError for a set that cannot be read or is empty."""
        try:
            self._texts = load_prompts(config.prompts)
        except (OSError, ValueError) as error:
            raise ConfigError(f"--prompts {config.prompts}: {error}") from None
        if not self._texts:
            raise ConfigError(f"--prompts {config.prompts}: holds no prompt")
        random.Random(config.seed).shuffle(self._texts)
        self._words = [word for text in self._texts for word in text.split()]
        self._unique = config.unique_prompts
        self._longest = config.max_prompt_tokens
        self._seed = config.seed

    def text(self, index: int, tokens: int = 0) -> str:
        """The prompt of request `index`; with `tokens`, text of about that length."""
        if tokens:
            text = self._built(index, min(tokens, self._longest))
        else:
            text = self._texts[index % len(self._texts)]
        return f"({self._seed}-{index}) {text}" if self._unique else text

    def _built(self, index: int, tokens: int) -> str:
        count = max(1, round(tokens * _WORDS_PER_TOKEN))
        start = random.Random(f"{self._seed} {index}").randrange(len(self._words))
        return " ".join(self._words[(start + i) % len(self._words)] for i in range(count))
