#!/usr/bin/env bash
# FetchContent, of an archive and of a folder. The archive has no more than what a user needs, and the
# project asks for an older standard of CUDA.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

(cd "$SOURCE" && "$CMAKE" -E tar czf "$WORK/deepum.tar.gz" CMakeLists.txt LICENSE cmake include kernel-helper)
configure build -Droute=fetch "-Ddeepum_source=$WORK/deepum.tar.gz" "${kernels[@]}" -DCMAKE_CUDA_STANDARD=17
build_and_run build
configure folder -Droute=fetch "-Ddeepum_source=$SOURCE"
