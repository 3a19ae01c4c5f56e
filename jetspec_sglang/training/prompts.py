"""Prompts as token ids, and the check that keeps evaluation prompts out of training data.

Contract: only `ChatTemplate.of_target` reads files. A prompt is rendered with the target's own chat
template, as the server would render it.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_PLACE = "\u2063USER TURN\u2063"


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """The target's template around one user message, as token ids.

    `before` ends where the user's message starts. The target continues it when it writes a prompt
    itself. `stops` are the ids that end a turn.
    """

    tokenizer: Any
    before: tuple[int, ...]
    stops: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Any, stops: Iterable[int]) -> ChatTemplate:
        """ValueError when the tokenizer has no chat template."""
        if not getattr(tokenizer, "chat_template", None):
            raise ValueError("the target's tokenizer has no chat template")
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": _PLACE}], tokenize=False, add_generation_prompt=True
        )
        before = tokenizer.encode(text.split(_PLACE)[0], add_special_tokens=False)
        return cls(tokenizer, tuple(before), tuple(stops))

    @classmethod
    def of_target(cls, name: str) -> ChatTemplate:
        """Tokenizer and stops of a target's folder or hub id."""
        from transformers import AutoTokenizer, GenerationConfig

        tokenizer = AutoTokenizer.from_pretrained(name)
        stops = {tokenizer.eos_token_id}
        try:
            configured = GenerationConfig.from_pretrained(name).eos_token_id
        except OSError:
            configured = None
        stops |= set(configured if isinstance(configured, list) else [configured])
        return cls.of(tokenizer, sorted(stop for stop in stops if stop is not None))

    def render(self, message: str) -> list[int]:
        """Token ids up to where the answer starts."""
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": message}], tokenize=False, add_generation_prompt=True
        )
        return self.tokenizer.encode(text, add_special_tokens=False)


_UNSPACED = ("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR ", "TIBETAN ")
"""Beginnings of the Unicode names of letters that are written without spaces between words."""
_LETTERS_A_WORD = 2
"""Letters that count as one word in those scripts."""


def normal_form(message: str) -> str:
    """The normal form of a prompt: its letters and digits, without case.

    Letters of every script stay, with their accents and vowel signs. A message without any letter
    or digit is not changed.
    """
    text = unicodedata.normalize("NFKC", message).casefold()
    text = unicodedata.normalize("NFKC", text)
    kept = "".join(_kept(character) for character in text)
    words = kept.split()
    form = "".join(
        word if i == 0 or _is_unspaced(word[0]) or _is_unspaced(words[i - 1][-1]) else f" {word}"
        for i, word in enumerate(words)
    )
    return form or text.strip()


def count_words(message: str) -> int:
    """Words of a message, also where none are separated by spaces."""
    counts = (sum(map(_is_unspaced, word)) for word in message.split())
    return sum(max(1, count // _LETTERS_A_WORD) for count in counts)


def _kept(character: str) -> str:
    """Keeps a letter, mark or digit, removes an invisible joiner, and replaces anything else by a
    space."""
    category = unicodedata.category(character)
    if category[0] in "LMN":
        return character
    return "" if category == "Cf" else " "


def _is_unspaced(character: str) -> bool:
    return not character.isascii() and unicodedata.name(character, "").startswith(_UNSPACED)


def prompt_hash(message: str) -> str:
    return hashlib.sha256(normal_form(message).encode()).hexdigest()


class HeldOut:
    """The hashes of prompts that training must never see."""

    def __init__(self, messages: Iterable[str]) -> None:
        self._hashes = {prompt_hash(message) for message in messages}

    def __contains__(self, message: str) -> bool:
        return prompt_hash(message) in self._hashes

    def __len__(self) -> int:
        return len(self._hashes)

    def digest(self) -> str:
        return hashlib.sha256("".join(sorted(self._hashes)).encode()).hexdigest()
