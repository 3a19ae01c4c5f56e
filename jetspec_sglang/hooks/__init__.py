"""Where SGLang calls us."""
