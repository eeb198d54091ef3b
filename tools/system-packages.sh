#!/usr/bin/env bash
# Sees to the system packages that a build needs: installs them where it may (Debian, Ubuntu), else
# names what is missing. Usage: system-packages.sh PYTHON
set -euo pipefail
python=$1

needed=()
wanted=()
command -v "$python" >/dev/null || needed+=(python3)
command -v g++ >/dev/null || needed+=(g++)
command -v make >/dev/null || needed+=(make)
if command -v "$python" >/dev/null; then
    "$python" -c 'import ensurepip, venv' 2>/dev/null || needed+=(python3-venv)
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
        needed+=(python3-dev)
else
    needed+=(python3-venv python3-dev)
fi
# Without these two the package builds too, but lacks the io_uring engine.
command -v pkg-config >/dev/null || wanted+=(pkg-config)
[ -e /usr/include/liburing.h ] || wanted+=(liburing-dev)
# Without this one its header is downloaded.
[ -e /usr/include/xxhash.h ] || wanted+=(libxxhash-dev)
# Without this one the tests between hosts are skipped.
command -v ip >/dev/null || wanted+=(iproute2)

packages=("${needed[@]}" "${wanted[@]}")
[ ${#packages[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ]; then
    as_root=()
elif sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
else
    as_root=(false)
fi
export DEBIAN_FRONTEND=noninteractive
if command -v apt-get >/dev/null && [ "${as_root[*]:-}" != false ]; then
    echo "installing system packages: ${packages[*]}"
    "${as_root[@]}" apt-get update -qq || true
    if "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null; then
        exit 0
    fi
fi
if [ ${#needed[@]} -gt 0 ]; then
    echo "missing, please install and run again: ${needed[*]}" >&2
    exit 1
fi
echo "not installed: ${wanted[*]}; what they are for is left out or downloaded" >&2
