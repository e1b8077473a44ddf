#!/usr/bin/env bash
# find_package(deepum) from an install tree, with the program that uses the whole of the library.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

install_to "$WORK/prefix"
configure build -Droute=find "-DCMAKE_PREFIX_PATH=$WORK/prefix" -Darena=ON
build_and_run build
if grep -rlF -e "$SOURCE" -e "$BUILD" "$WORK/prefix"; then
  fail "the install tree names the tree that it was made from"
fi
