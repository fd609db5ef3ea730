#!/bin/sh
# Installs the C library of gradlet for this machine: header, static and shared library, and the file of pkg-config.
#
#   cargo build --release --package gradlet-c
#   sh c/install.sh target/release /usr/local

set -eu
if [ $# -ne 2 ]; then
    echo "usage: sh install.sh FOLDER_OF_THE_LIBRARIES PREFIX" >&2
    exit 2
fi
from=$1
sources=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$sources/../Cargo.toml" | head -n 1)
mkdir -p "$2/include" "$2/lib/pkgconfig"
prefix=$(cd "$2" && pwd)

cp "$sources/include/gradlet.h" "$prefix/include/"
found=0
for library in libgradlet_c.a libgradlet_c.so libgradlet_c.dylib; do
    if [ -f "$from/$library" ]; then
        cp "$from/$library" "$prefix/lib/"
        found=1
    fi
done
if [ $found -eq 0 ]; then
    echo "$from has no libgradlet_c: run \`cargo build --release --package gradlet-c\`" >&2
    exit 1
fi
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$sources/gradlet.pc.in" > "$prefix/lib/pkgconfig/gradlet.pc"
