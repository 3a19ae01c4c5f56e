"""Prompts of the integration tests, as token ids of the embedded target's chat template.

Forty own texts (word problems, code, chat); `many(n)` extends them deterministically, or takes
GSM8K and MBPP beside them when `JETSPEC_DATA` holds those sets.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from jetspec_sglang import embedded

MATHS = (
    "A baker sells {n} loaves in the morning and half as many in the afternoon. How many in all?",
    "Anna has {n} marbles and gives a third of them to Ben. How many does she keep?",
    "A train goes {n} miles an hour for three hours and then rests. How far did it go?",
    "Each of {n} boxes holds 12 pens and 5 pens are lost. How many pens are left?",
    "A shirt costs ${n} and is sold at 20% off. What is the price now?",
    "Tom reads {n} pages a day. How many pages does he read in two weeks?",
    "There are {n} chairs in rows of 6. How many full rows are there?",
    "A tank of {n} litres loses 3 litres an hour. When is it empty?",
    "Lily saves ${n} a week and spends $4 of it. What has she after ten weeks?",
    "A class of {n} pupils splits into teams of four. How many pupils are left over?",
    "A farmer has {n} hens; each lays 5 eggs a week. How many dozens is that in a month?",
    "If {n} workers build a wall in 8 days, how long do twice as many need?",
    "The sum of two numbers is {n} and their difference is 6. What are they?",
    "A rectangle is {n} cm long and 7 cm wide. What are its area and perimeter?",
)
CODE = (
    "Write a Python function that returns the {n}th Fibonacci number.",
    "Write a Python function to check if a list of {n} numbers is sorted.",
    "Write a Python function that removes duplicates from a list and keeps the order.",
    "Write a Python function that counts the words longer than {n} letters in a text.",
    "Write a Python function to find the largest number below {n} that divides 5040.",
    "Write a Python class for a stack with push, pop and a limit of {n} items.",
    "Write a Python function that reverses the words of a sentence.",
    "Write a Python function to convert {n} seconds into hours, minutes and seconds.",
    "Write a Python function to merge two sorted lists.",
    "Write a Python function that tells whether a string is a palindrome.",
    "Write a Python function that sums the digits of {n}.",
    "Write a Python generator of the first {n} prime numbers.",
    "Write a Python function that transposes a matrix of {n} rows.",
)
CHAT = (
    "Name {n} things to take on a hike and say why.",
    "Why do leaves change colour in autumn?",
    "Write a short poem with {n} lines about rain on a roof.",
    "How do I keep a houseplant alive when I travel for {n} days?",
    "Explain gravity to a child of {n} years.",
    "Write a polite letter asking for a refund of {n} dollars.",
    "What is the difference between weather and climate?",
    "Give me a recipe for pancakes for {n} people.",
    "How does a bicycle stay upright?",
    "Tell me a story about a fox and a clock that strikes {n}.",
    "List {n} ways to save water at home.",
    "What does a good day look like for you?",
    "Describe a market town {n} centuries ago.",
)
TEXTS = tuple(text for trio in zip(MATHS, CODE, CHAT, strict=False) for text in trio) + MATHS[-1:]
SYSTEM = (
    "You are a careful assistant. Read the question twice, think about what is asked, work in "
    "small steps, check every number, write plainly and finish with the answer on its own line."
)


def texts(count: int) -> list[str]:
    """The first `count` texts; a second pass over the templates changes their numbers."""
    return [TEXTS[i % len(TEXTS)].format(n=4 + 3 * (i // len(TEXTS)) + i % 7) for i in range(count)]


def many(count: int) -> list[str]:
    """Texts of the full run: with `JETSPEC_DATA`, two thirds of them from GSM8K and MBPP."""
    if not os.environ.get("JETSPEC_DATA"):
        return texts(count)
    from jetspec_sglang.evaluation.datasets import load_prompts

    third = count // 3
    sets = [list(load_prompts(name))[:third] for name in ("gsm8k", "mbpp")]
    return [*sets[0], *sets[1], *texts(count - sum(map(len, sets)))]


@cache
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(embedded.target_path()))


def chat_ids(text: str, system: str | None = None) -> list[int]:
    """Token ids of one user message, with the start of the answer."""
    messages = [{"role": "user", "content": text}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    rendered = tokenizer().apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return tokenizer().encode(rendered, add_special_tokens=False)


def raw_ids(text: str) -> list[int]:
    """Token ids of a text as it stands: shorter than a chat prompt."""
    return tokenizer().encode(text, add_special_tokens=False)
