#!/usr/bin/env bash
# Builds liburing as a static library with $CC: Debian's source where there is apt-get, else that of
# upstream at a fixed commit. Usage: CC=... AR=... liburing.sh PREFIX
set -euo pipefail
prefix=$(mkdir -p "$1" && cd "$1" && pwd)
[ -e "$prefix/lib/liburing.a" ] && exit 0
upstream=https://github.com/axboe/liburing
commit=08468cc3830185c75f9e7edefd88aa01e5c2f8ab # liburing-2.9

source=$(mktemp -d)
trap 'rm -rf "$source"' EXIT
cd "$source"
if command -v apt-get >/dev/null; then
    # The machine's sources of packages, but for their source; the machine's own lists stay as they are.
    mkdir -p lists/partial sources.d
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
        [ -f "$list" ] && sed 's/^Types: *deb$/Types: deb-src/; s/^deb /deb-src /' "$list" >"sources.d/${list##*/}"
    done
    apt() {
        apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$source/sources.d" \
            -o Dir::State::lists="$source/lists" -o APT::Sandbox::User=root "$@"
    }
    apt update
    apt source --download-only liburing
    mkdir tree
    tar xf liburing_*.orig.tar.gz -C tree --strip-components 1
else
    git init -q tree
    git -C tree fetch -q --depth 1 "$upstream" "$commit"
    git -C tree checkout -q FETCH_HEAD
fi
cd tree
./configure --prefix="$prefix" --libdir="$prefix/lib" --cc="${CC:-cc}" >/dev/null
make -s -C src CC="${CC:-cc}" AR="${AR:-ar}" RANLIB="${RANLIB:-ranlib}" CFLAGS="-O3 -fPIC" ENABLE_SHARED=0
make -s -C src CC="${CC:-cc}" ENABLE_SHARED=0 install
