"""A draft head as files and as a model in plain PyTorch.

Contract: `check.check_head` is the one check of a head, for server, doctor and engine. `config`
and `checkpoint` read the folder. `model` is the definition that SGLang's own head must agree with;
training and offline evaluation run it.
"""
