"""Where SGLang calls us: one module for each thing that it asks or tells.

Contract: `plugin` registers these functions. A hook translates between SGLang's objects and the
rooms below and keeps no state of its own. It never changes what SGLang does for a server without
JETSPEC. It refuses what cannot work, with one clear line.
"""
