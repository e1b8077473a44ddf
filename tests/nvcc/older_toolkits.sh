#!/usr/bin/env bash
# Compiles the CUDA parts for the host with the headers of older toolkits, which come from the package index of Python.
# usage: older_toolkits.sh FOLDER    where to keep what is fetched. Exit status 77: it cannot be fetched here.
set -euo pipefail
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=${1:?usage: older_toolkits.sh FOLDER}
versions=(12.0 12.1 12.4 12.8)  # what api.hpp tells apart lies between these, and 13.0 is the one of the main build
packages=(cuda-runtime cuda-nvcc cuda-cupti)

for version in "${versions[@]}"; do
  to=$folder/$version
  include=()
  for package in "${packages[@]}"; do
    if [[ ! -d $to/nvidia/${package//-/_}/include ]]; then
      python3 -m pip download -q --no-deps --platform manylinux2014_x86_64 --platform manylinux1_x86_64 \
        --only-binary=:all: -d "$to" "nvidia-$package-cu12==$version.*" || exit 77
      python3 -m zipfile -e "$to/nvidia_${package//-/_}"_cu12-*.whl "$to"
    fi
    include+=(-isystem "$to/nvidia/${package//-/_}/include")
  done
  echo "CUDA $version"
  "${CXX:-g++}" -std=c++20 -Wall -Wextra -Werror -fsyntax-only "-I$source_dir/include" "-I$source_dir/kernel-helper" \
    "${include[@]}" -DDEEPUM_KERNEL_HELPER=1 -x c++ - <<<'#include <deepum/cuda.hpp>
#include <deepum/deepum.hpp>
void kernel(float*, float);
void launch_one() {
  deepum::cuda::device gpu{0};
  deepum::arena arena{gpu, {.device_budget = deepum::bytes{1U << 30U}}};
  deepum::stream stream{arena};
  auto* x = arena.allocate<float>(32);
  stream.launch("kernel", 1, 32, 0, kernel, deepum::overwrites(x, 32), 1.0F);
  arena.discard(x, deepum::bytes{128});
  stream.synchronize();
}'
done
