#!/usr/bin/env bash
# A build of the library with sanitizers and warnings as errors: none of its flags may reach who uses it, by the build
# tree, the install tree or as a part of the project.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

own=(-DDEEPUM_SANITIZE=address -DDEEPUM_WERROR=ON -DDEEPUM_BUILD_TESTS=OFF -DDEEPUM_BUILD_EXAMPLES=ON
  -DDEEPUM_BUILD_BENCH=OFF)
if ((!CUDA)); then
  own+=(-DDEEPUM_CUDA=OFF)
fi
"$CMAKE" -S "$SOURCE" -B "$WORK/library" -G "$GENERATOR" "-DCMAKE_CXX_COMPILER=$COMPILER" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "${own[@]}"
grep -q -e '-fsanitize=address' "$WORK/library/compile_commands.json" || fail "the library has no sanitizer"
BUILD=$WORK/library
install_to "$WORK/prefix"

# The commands that compile and link the consumer's programs may have none of these, as it asks for none of them.
unwanted=' (-O|-g|-W[^l]|-f(sanitize|no-)|-march|-DDEEPUM_[^K]|-DNDEBUG|-std=[^ ]*(1[0-9]|2[^0]))'
check() {
  configure "$@" >/dev/null
  "$CMAKE" --build "$WORK/$1" --verbose >"$WORK/$1.log"
  local lines
  # What belongs to the library's own programs is not the user's, and C11 is for the reader's one file.
  lines=$(grep -e ' -o ' "$WORK/$1.log" | grep -E '(core|kernel_helper|cuda)\.cpp\.o|deepum_uvm_events\.c\.o' |
    sed 's/ -std=c11 / /')
  for program in core kernel_helper; do
    grep -q -e "-o [^ ]*/$program.cpp.o" <<<"$lines" || fail "$1: no command compiles $program.cpp"
    grep -q -e "-o $program " <<<"$lines" || fail "$1: no command links $program"
  done
  if grep -E -e "$unwanted" <<<"$lines"; then
    fail "$1: these commands have flags of the library"
  fi
  "$CMAKE" --build "$WORK/$1" --target run
  echo "$1: $(wc -l <<<"$lines") commands without any"
}
check build_tree -Droute=find "-Ddeepum_DIR=$BUILD"
check install_tree -Droute=find "-DCMAKE_PREFIX_PATH=$WORK/prefix"
check subdirectory -Droute=subdirectory "-Ddeepum_source=$SOURCE" -DDEEPUM_SANITIZE=address -DDEEPUM_WERROR=ON
