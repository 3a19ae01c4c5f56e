"""Exceptions that end a command with one line on stderr instead of a traceback."""


class CommandError(Exception):
    """The command failed; the message is one line that says why and what to do. Exit status 1."""

    status = 1


class UsageError(CommandError):
    """The command line itself is wrong. Exit status 2."""

    status = 2
