#!/usr/bin/env bash
# cxx17.sh INCLUDE NVCC COMPILER: below C++20 every header of the library ends the compilation with one #error, and says
# nothing else before it. NVCC may be empty.
set -euo pipefail
include=$1 nvcc=$2 compiler=$3
wanted='"deepum needs C++20: compile with -std=c++20;'

# refused HEADER COMMAND...: the command fails, and all that it calls an error is that.
refused() {
  local header=$1 said errors
  shift
  if said=$("$@" -I"$include" - <<<"#include <deepum/$header>" 2>&1); then
    echo "FAILED: $header is compiled: $*" >&2
    exit 1
  fi
  errors=$(grep -F 'error: ' <<<"$said" | grep -vF 'fatal error: ')  # what is fatal is how GCC and clang end
  if grep -vF "$wanted" <<<"$errors" || [[ $1 != "$nvcc" && $(wc -l <<<"$errors") != 1 ]]; then
    echo "$said" >&2
    echo "FAILED: $header: not one #error and no more: $*" >&2
    exit 1
  fi
}

cd "$include/deepum"
while read -r header; do
  refused "${header#./}" "$compiler" -std=c++17 -x c++ -fsyntax-only
done < <(find . -name '*.hpp' ! -path '*/impl/*' ! -name src.hpp)  # these are for who has C++20 in any case

if [[ -n $nvcc ]]; then
  for header in arena.hpp cuda.hpp; do
    refused "$header" "$nvcc" -std=c++17 -x cu -c -o /dev/null
  done
fi
