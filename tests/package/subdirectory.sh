#!/usr/bin/env bash
# add_subdirectory of the source tree.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

configure build -Droute=subdirectory "-Ddeepum_source=$SOURCE"
build_and_run build
"$CMAKE" --install "$WORK/build" --prefix "$WORK/prefix"
[[ ! -e $WORK/prefix/include ]] || fail "the library installed itself with a project that contains it"
