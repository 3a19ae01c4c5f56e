#!/bin/sh
# SGLang's router; JETSPEC_API_KEY_FILE names the clients' key, which the engines ask for.
set -eu
if [ -n "${JETSPEC_API_KEY_FILE:-}" ]; then
    [ -s "$JETSPEC_API_KEY_FILE" ] || { echo "router: $JETSPEC_API_KEY_FILE holds no key" >&2; exit 2; }
    set -- "--api-key=$(head -n 1 "$JETSPEC_API_KEY_FILE")" "$@"
fi
exec python3 -m sglang_router.launch_router "$@"
