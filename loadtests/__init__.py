"""Load tests of OpenAI-compatible servers with Locust, and the reports they write.

Everything but `locustfile`, `client` and `node` is free of Locust and of gevent, so that tests and
other commands can use the arithmetic.
"""
