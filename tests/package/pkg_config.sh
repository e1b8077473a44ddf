#!/usr/bin/env bash
# pkg-config and a compiler, without CMake, from an install tree.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
command -v pkg-config >/dev/null || skip "no pkg-config here"

install_to "$WORK/prefix"
export PKG_CONFIG_PATH=$WORK/prefix/share/pkgconfig
defines=("-DEXPECTED_VERSION=\"$VERSION\"")
set -x
pkg-config --exists --print-errors "deepum = $VERSION" "deepum-cuda = $VERSION"
if pkg-config --exists "deepum > $VERSION"; then
  fail "a version that is too new must be refused"
fi
"$COMPILER" -std=c++20 "${defines[@]}" "$consumer/core.cpp" -o "$WORK/core" $(pkg-config --cflags --libs deepum)
"$WORK/core"
set +x

flags=" $(pkg-config --cflags --libs deepum) "
for flag in $flags; do
  [[ $flag == -I* || $flag == -lpthread ]] || fail "deepum.pc asks for $flag"
done

if ((CUDA)); then
  [[ -n ${CUDA_HOME-} ]] || fail "CUDA_HOME is not set"
  pc=(pkg-config "--define-variable=cuda_home=$CUDA_HOME")
  set -x
  "${CC:-cc}" -std=c11 -c "$("${pc[@]}" --variable=kernel_helper deepum-cuda)/deepum_uvm_events.c" -o "$WORK/reader.o"
  "$COMPILER" -std=c++20 "${defines[@]}" "$consumer/cuda.cpp" "$WORK/reader.o" -o "$WORK/cuda" \
    $("${pc[@]}" --cflags --libs deepum-cuda)
  LD_LIBRARY_PATH=$CUDA_HOME/lib64 "$WORK/cuda"
  "$NVCC" -std=c++20 "${defines[@]}" "$consumer/kernel.cu" "$WORK/reader.o" -o "$WORK/kernel" \
    $("${pc[@]}" --cflags --libs deepum-cuda)
  LD_LIBRARY_PATH=$CUDA_HOME/lib64 "$WORK/kernel"
fi
