#!/bin/sh
# `jetspec serve "$@"` with keys from files: no image, variable or command line contains a key.
#   JETSPEC_ADMIN_KEY_FILE  the controller's key for /set_internal_state
#   JETSPEC_API_KEY_FILE    the clients' key; without it anyone who reaches the port is served
set -eu
umask 077
config=${TMPDIR:-/tmp}/engine-keys.yaml
: > "$config"

add() {
    flag=$1 file=$2
    [ -n "$file" ] || return 0
    [ -r "$file" ] || { echo "engine: $file cannot be read; it must contain the $flag" >&2; exit 2; }
    key=$(head -n 1 "$file")
    case $key in
        # SGLang would take a beginning "-" for a flag.
        '' | -* | *[!A-Za-z0-9._~+/=-]*)
            echo "engine: $file: the $flag must be one line of letters, digits and . _ ~ + / = -, and not begin with -" >&2
            exit 2 ;;
    esac
    printf '%s: "%s"\n' "$flag" "$key" >> "$config"
}

add admin-api-key "${JETSPEC_ADMIN_KEY_FILE:-}"
add api-key "${JETSPEC_API_KEY_FILE:-}"
[ -s "$config" ] && set -- --config "$config" "$@"
exec jetspec serve --no-controller "$@"
