#!/bin/sh
# dieharder's whole battery (Debian package dieharder) on every stream of rng_stream.py; a log for each.
# A result between 1e-6 and 0.005 is repeated with more samples until it passes or fails (-Y 1).
# About an hour of one core a stream. Usage: sh benchmarks/dieharder.sh [STREAM ..]
set -eu
cd "$(dirname "$0")/.."
mkdir -p benchmarks/dieharder
for stream in ${*:-splitmix64-trajectories splitmix64-seeds numpy-philox}; do
    "${PYTHON:-python}" -m benchmarks rng_stream --stream "$stream" |
        dieharder -a -g 200 -Y 1 >"benchmarks/dieharder/$stream.log"
done
