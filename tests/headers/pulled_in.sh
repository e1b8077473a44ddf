#!/usr/bin/env bash
# pulled_in.sh COMPILER FLAG...: <deepum/arena.hpp> brings no Abseil, <iostream> or <regex> to who includes it, and no
# policy with DEEPUM_SEPARATE_COMPILATION, nor <deepum/deepum.hpp> what the simulated GPU is made of.
set -euo pipefail

pulled_in() {
  local header=$1
  shift
  "$@" -x c++ -M - <<<"#include <deepum/$header>" | tr -s ' \\' '\n\n'
}
refuse() {
  local header=$1 files=$2 which=$3
  if grep -E "$which" <<<"$files"; then
    echo "FAILED: <deepum/$header> pulls that in" >&2
    exit 1
  fi
}

all=$(pulled_in arena.hpp "$@")
grep -q 'deepum/policy/auto.hpp$' <<<"$all"
refuse arena.hpp "$all" '/absl/|/c\+\+/[0-9.]+/(iostream|regex)$|/cuda'
separate=$(pulled_in arena.hpp "$@" -DDEEPUM_SEPARATE_COMPILATION)
grep -q 'deepum/policy/policy.hpp$' <<<"$separate"
refuse arena.hpp "$separate" 'deepum/policy/(auto|deepum|impl/make_policy|step_plan)\.hpp$'

all=$(pulled_in deepum.hpp "$@")
grep -q 'deepum/sim/impl/driver.hpp$' <<<"$all"
separate=$(pulled_in deepum.hpp "$@" -DDEEPUM_SEPARATE_COMPILATION)
grep -q 'deepum/sim/driver.hpp$' <<<"$separate"
refuse deepum.hpp "$separate" 'deepum/((policy|arena|engine)/impl/[a-z_]+|sim/impl/[a-z_]+)\.hpp$'
