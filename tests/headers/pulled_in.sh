#!/usr/bin/env bash
# pulled_in.sh COMPILER FLAG...: <deepum/arena.hpp> brings no Abseil, <iostream> or <regex> to who includes it, and no
# policy with DEEPUM_SEPARATE_COMPILATION.
set -euo pipefail

pulled_in() {
  "$@" -x c++ -M - <<<'#include <deepum/arena.hpp>' | tr -s ' \\' '\n\n'
}
refuse() {
  local files=$1 which=$2
  if grep -E "$which" <<<"$files"; then
    echo "FAILED: <deepum/arena.hpp> pulls that in" >&2
    exit 1
  fi
}

all=$(pulled_in "$@")
grep -q 'deepum/policy/auto.hpp$' <<<"$all"
refuse "$all" '/absl/|/c\+\+/[0-9.]+/(iostream|regex)$|/cuda'
separate=$(pulled_in "$@" -DDEEPUM_SEPARATE_COMPILATION)
grep -q 'deepum/policy/policy.hpp$' <<<"$separate"
refuse "$separate" 'deepum/policy/(auto|deepum|policies|step_plan)\.hpp$'
