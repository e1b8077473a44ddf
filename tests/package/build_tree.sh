#!/usr/bin/env bash
# find_package(deepum) from a build tree of the library: nothing is installed.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

configure build -Droute=find "-Ddeepum_DIR=$BUILD"
build_and_run build
