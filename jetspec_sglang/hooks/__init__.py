"""Where SGLang calls us: one module for each thing that it asks or tells.

Contract: `plugin` registers these functions in every process of SGLang. A hook translates between
SGLang's objects and the rooms below. It refuses what cannot work, with one clear line.
"""
