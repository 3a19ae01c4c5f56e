#!/bin/sh
# Creates the secret files that compose.yaml names, with random values. Existing files are kept.
# Compose mounts each file unchanged, and a container runs as another user. So every user can read the
# files, but only you can enter the folder.
set -eu
folder=$(dirname "$0")/secrets
umask 077
mkdir -p "$folder"
chmod 700 "$folder"

# Hexadecimal: a key that began with "-" would be taken for a flag.
random() {
    head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'
}

make() {
    name=$1 prefix=$2
    if [ -d "$folder/$name" ]; then
        echo "$folder/$name is a folder, which Docker creates for a missing file: remove it" >&2
        exit 1
    fi
    # What an interrupted run left.
    rm -f "$folder/.$name"
    if [ -s "$folder/$name" ]; then
        echo "$folder/$name: kept"
        return
    fi
    printf '%s%s\n' "$prefix" "$(random)" > "$folder/.$name"
    chmod 444 "$folder/.$name"
    mv "$folder/.$name" "$folder/$name"
    echo "$folder/$name: created"
}

make admin_key ""
make controller_tokens "operator "
make grafana_password ""
