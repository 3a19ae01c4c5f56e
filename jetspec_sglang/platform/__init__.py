def activate() -> str | None:
    return None
