#!/usr/bin/env bash
# Installs what is missing, builds into build/ and runs every test.
#   scripts/test.sh              all tests
#   scripts/test.sh -R kernels   further words go to ctest
set -euo pipefail
cd -- "$(dirname -- "$0")/.."

scripts/install_packages.sh tests

echo "Building (Release) into build/"
mkdir -p build
cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCOMPACT_TESTS=ON | tee build/configure.log
cmake --build build -j "$(nproc)"
# Where it is built, its kernels run in the tests whether there is a card or not (docs/cuda.md).
grep -o 'CUDA backend: .*' build/configure.log

# One test at a time: several of them use all threads, and some measure time or memory.
echo "Running the tests"
ctest --test-dir build --output-on-failure --no-tests=error -j 1 "$@"
