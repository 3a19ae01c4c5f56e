"""The losses' names, apart from their code so that settings and help need no torch."""

from typing import Literal

Loss = Literal["forward_kl", "reverse_kl", "sft"]
