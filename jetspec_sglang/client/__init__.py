"""What talks to a running server, and what starts and ends one.

Contract: a failure is one `errors.CommandError` that names the server. Nothing here runs inside
SGLang. I/O: HTTP, processes.
"""
