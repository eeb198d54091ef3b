#!/usr/bin/env bash
# The core and generated kernels under the sanitizers of gcc: addresses and undefined behaviour in
# one pass, races between threads in another. Usage: sanitize.sh build|test PYTHON
#
# Each pass has a build of the package of its own in build/sanitize, not optimised, which compiles
# faster than it runs slower. The interpreter is not instrumented, so the sanitizer's library is
# loaded before it.
set -euo pipefail
cd "$(dirname "$0")/.."
what=$1
python=$(realpath -s "$2")
installed=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
base=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
folder=$PWD/build/sanitize
export OPENBLAS_NUM_THREADS=1

# build NAME SANITIZERS: build the package so, and a compiler for kernels.
build() {
    local name=$1 sanitizers=$2
    PATH="$(dirname "$python"):$PATH" "$python" -m pip install --quiet \
        --disable-pip-version-check --no-deps --no-build-isolation --upgrade \
        --target "$folder/$name" -C build-dir="$folder/$name-cmake" \
        -C cmake.build-type=Debug -C cmake.define.OUTGRID_SANITIZE="$sanitizers" .
    # Kernels are compiled by the same compiler as ever; what is said last counts.
    printf '#!/bin/sh\nLD_PRELOAD= exec g++ "$@" -Og -g1 -fsanitize=%s %s\n' \
        "$sanitizers" '-fno-sanitize-recover=undefined' >"$folder/$name-c++"
    chmod +x "$folder/$name-c++"
}

# pass NAME SANITIZERS PRELOADED TESTS...: run these tests with what was built so.
pass() {
    local name=$1 sanitizers=$2 preloaded=$3
    shift 3
    echo "sanitize: $sanitizers"
    # Without `site` the editable package of the environment stays out of the way.
    OUTGRID_SANITIZED=$name LD_PRELOAD=$preloaded CXX=$folder/$name-c++ PYTHONPATH=$folder/$name:$installed \
        "$base" -S -m pytest -q --override-ini cache_dir="$folder/$name-cache" "$@"
}

library() { realpath "$(g++ -print-file-name="$1")"; }

if [ "$what" = build ]; then
    mkdir -p "$folder"
    build address address,undefined &
    build thread thread
    wait $!
    exit
fi

export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:report_signal_unsafe=0

# Both passes at once, and that for addresses in two parts: each keeps one processor busy.
libraries="$(library libasan.so) $(library libstdc++.so.6)"
# What is shuffled is so in Python, over an engine that is tested as it is.
pass address address,undefined "$libraries" \
    tests/conformance/test_stores.py -k 'not shuffled' >"$folder/stores.log" 2>&1 &
stores=$!
pass address address,undefined "$libraries" \
    tests/property/test_queue.py tests/property/test_folding.py tests/unit/test_native.py tests/unit/remote/test_remote.py \
    tests/unit/storage/test_sums.py tests/unit/storage/test_outlet.py tests/unit/storage/test_packed.py tests/unit/storage/test_folding.py \
    tests/unit/codegen/test_kernel.py::test_a_reach_along_x_beyond_the_guard_of_the_window_is_refused \
    tests/unit/codegen/test_kernel.py::test_what_is_computed_ahead_reads_within_the_guard_of_the_window \
    tools/sanitize/test_streams.py >"$folder/address.log" 2>&1 &
address=$!
status=0
pass thread thread "$(library libtsan.so) $(library libstdc++.so.6)" \
    tests/unit/test_native.py tests/unit/remote/test_remote.py tests/unit/storage/test_outlet.py tests/unit/storage/test_packed.py tests/unit/storage/test_folding.py \
    tools/sanitize/test_streams.py || status=$?
wait $stores || status=$?
wait $address || status=$?
cat "$folder/stores.log" "$folder/address.log"
exit $status
