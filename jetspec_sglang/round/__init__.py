"""One round: draft, build the tree, verify, accept, commit.

Contract: `worker.JetSpecWorker` runs the rounds inside SGLang's scheduler; `engine.build_engine`
makes its parts once. All that belongs to one request lives in the batch's `state.DraftState` and
in the KV pools. Devices differ only behind `device`.
"""
