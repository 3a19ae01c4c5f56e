"""The host platform."""
