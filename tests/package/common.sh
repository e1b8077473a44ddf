# For the scripts of this folder, which CMakeLists.txt starts with these variables:
#   SOURCE, BUILD   the library's source tree and a configured build tree of it
#   WORK            a folder for the test alone
#   CMAKE, GENERATOR, COMPILER, VERSION
#   CUDA            1: the build found CUDA, so the consumer has to find it too
#   CUDA_HOME, NVCC where it is, and its compiler
# Exit status 77: it cannot be done here.
set -euo pipefail

consumer=$SOURCE/tests/package/consumer
unset CFLAGS CXXFLAGS CUDAFLAGS LDFLAGS  # the consumer has the flags that it asks for and those that the library brings
rm -rf "$WORK"
mkdir -p "$WORK"

# Options of `configure` for a consumer that has .cu files, where there is CUDA.
kernels=()
if ((CUDA)); then
  kernels=(-Dkernels=ON "-DCMAKE_CUDA_COMPILER=$NVCC")
fi

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

skip() {
  echo "skipped: $*"
  exit 77
}

# Installs the library into the folder $1. Moved afterwards: an install tree must not remember where it was made.
install_to() {
  "$CMAKE" --install "$BUILD" --prefix "$WORK/elsewhere/first" >/dev/null
  mkdir -p "$(dirname "$1")"
  mv "$WORK/elsewhere/first" "$1"
}

# configure NAME OPTION...: configures the consumer in $WORK/NAME.
configure() {
  local name=$1 cuda=()
  shift
  ((!CUDA)) || cuda=(-Dexpect_cuda=ON)
  "$CMAKE" -S "$consumer" -B "$WORK/$name" -G "$GENERATOR" "-DCMAKE_CXX_COMPILER=$COMPILER" -DCMAKE_BUILD_TYPE= \
    "-Dexpected_version=$VERSION" "-Drequest=${VERSION%.*}" "-Dcomponents=core;compiled;kernel_helper" \
    "-Doptional_components=cuda;compiled_cuda;c" "${cuda[@]}" "$@"
}

# Builds what `configure NAME` configured, and runs its programs.
build_and_run() {
  "$CMAKE" --build "$WORK/$1" -j 2
  "$CMAKE" --build "$WORK/$1" --target run
}

# refused TEXT NAME OPTION...: `configure NAME OPTION...` must fail and say TEXT.
refused() {
  local text=$1 said
  shift
  if said=$(configure "$@" 2>&1); then
    echo "$said"
    fail "not refused: $*"
  fi
  # CMake breaks lines.
  if [[ $(tr -s ' \n' ' ' <<<"$said") != *"$text"* ]]; then
    echo "$said"
    fail "refused without saying '$text': $*"
  fi
  echo "refused, as it should be: $*"
}
