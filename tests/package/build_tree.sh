#!/usr/bin/env bash
# find_package(deepum) from a build tree of the library: nothing is installed. With the program that
# uses the whole of the library and CUDA.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

configure build -Droute=find "-Ddeepum_DIR=$BUILD" -Dcuda_arena=deepum::cuda "${kernels[@]}"
build_and_run build
