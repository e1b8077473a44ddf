#!/usr/bin/env bash
# add_subdirectory of the source tree, in a project that requires its own standard.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

configure build -Droute=subdirectory "-Ddeepum_source=$SOURCE" "${kernels[@]}" -DCMAKE_CXX_STANDARD=17 \
  -DCMAKE_CXX_STANDARD_REQUIRED=ON
build_and_run build
"$CMAKE" --install "$WORK/build" --prefix "$WORK/prefix"
[[ ! -e $WORK/prefix/include ]] || fail "the library installed itself with a project that contains it"
