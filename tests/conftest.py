"""Settings that all tests share."""

from hypothesis import settings

# Machines that run the tests are shared and slow at times; a test's time limit is pytest's.
settings.register_profile("shared-machine", deadline=None)
settings.load_profile("shared-machine")
