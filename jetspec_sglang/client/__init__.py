"""What talks to a running server."""
