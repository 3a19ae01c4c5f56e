"""The model families that this project is measured on, for a faster start of SGLang.

Contract: named in `SGLANG_EXTERNAL_MODEL_PACKAGE`, SGLang imports this package's modules instead of
all of its own (some two hundred), in every process that loads a model. It imports its own ones
later, at the first model that is not here. Each module has SGLang's `EntryClass`.
"""

VARIABLE = "SGLANG_EXTERNAL_MODEL_PACKAGE"
PACKAGE = __name__
