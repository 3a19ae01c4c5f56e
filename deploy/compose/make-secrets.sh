#!/bin/sh
# Makes the secret files that compose.yaml names, with random values. Files that exist are kept.
# Compose mounts each file as it is and a container is another user, so the files are readable by
# all; the folder is yours alone, which keeps everyone else on this machine out.
set -eu
folder=$(dirname "$0")/secrets
umask 077
mkdir -p "$folder"
chmod 700 "$folder"

random() {
    head -c 32 /dev/urandom | base64 | tr -d '\n=' | tr '+/' '-_'
}

make() {
    name=$1 prefix=$2
    if [ -s "$folder/$name" ]; then
        echo "$folder/$name: kept"
        return
    fi
    printf '%s%s\n' "$prefix" "$(random)" > "$folder/.$name"
    chmod 444 "$folder/.$name"
    mv "$folder/.$name" "$folder/$name"
    echo "$folder/$name: made"
}

make admin_key ""
make controller_tokens "operator "
make grafana_password ""
