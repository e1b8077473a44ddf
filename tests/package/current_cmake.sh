#!/usr/bin/env bash
# A .cu file with a current CMake, which is installed here for it: it knows nvcc's flag for C++20, and that of Debian 12
# does not.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
((CUDA)) || skip "no CUDA compiler"

install_to "$WORK/prefix"
python3 -m venv "$WORK/venv" || skip "no venv module for this python3 (package python3-venv)"
"$WORK/venv/bin/pip" install -q --retries 2 'cmake>=3.31' || skip "no package index of Python to install CMake from"
CMAKE=$WORK/venv/bin/cmake
"$CMAKE" --version

# tried NAME OPTION...: configures, and builds the programs of a .cu file.
tried() {
  configure "$@" "${kernels[@]}"
  "$CMAKE" --build "$WORK/$1" --target kernel
  "$WORK/$1/kernel"
}
tried find -Droute=find "-DCMAKE_PREFIX_PATH=$WORK/prefix"
tried older -Droute=find "-DCMAKE_PREFIX_PATH=$WORK/prefix" -DCMAKE_CUDA_STANDARD=17
tried subdirectory -Droute=subdirectory "-Ddeepum_source=$SOURCE"
tried fetch -Droute=fetch "-Ddeepum_source=$SOURCE"
