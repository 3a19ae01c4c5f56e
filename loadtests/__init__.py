"""Load tests of OpenAI-compatible servers with Locust, and the reports they write.

Only `locustfile`, `client` and `node` import Locust and gevent. So tests and other commands can use
the rest.
"""
