#!/usr/bin/env bash
# find_package(deepum) from an install tree, with the programs that take long to compile.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

install_to "$WORK/prefix"
configure build -Droute=find "-DCMAKE_PREFIX_PATH=$WORK/prefix" -Darena=ON -Dcompiled=ON -Dc_face=ON \
  "${kernels[@]}" -Dfirst=deepum::compiled_cuda
build_and_run build
if grep -rlF -e "$SOURCE" -e "$BUILD" "$WORK/prefix"; then
  fail "the install tree names the tree that it was made from"
fi
