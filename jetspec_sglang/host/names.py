"""Names that SGLang knows our device-specific parts by."""

HOST_ATTENTION = "jetspec_host"
