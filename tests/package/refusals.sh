#!/usr/bin/env bash
# What find_package has to refuse, and the reasons it has to give.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

install_to "$WORK/prefix"
find=(-Droute=find "-DCMAKE_PREFIX_PATH=$WORK/prefix" -Dexpect_cuda=OFF)
IFS=. read -r major minor patch <<<"$VERSION"

# Too new; and, before 1.0, of another minor version.
requests=("$((major + 1))" "$major.$((minor + 1))" "$major.$minor.$((patch + 1))")
if ((major == 0 && minor > 0)); then
  requests+=("0.$((minor - 1))")
fi
for request in "${requests[@]}"; do
  refused "compatible with requested version \"$request\"" version "${find[@]}" "-Drequest=$request"
done

refused "component gpu: there is no such component" unknown "${find[@]}" -Dcomponents=gpu

# Without CUDA: core is there, an optional component is left out with a reason, a required one is refused with it.
no_cuda=("${find[@]}" -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
refused "component cuda: no CUDA toolkit was found" no_cuda "${no_cuda[@]}" -Dcomponents=cuda -Doptional_components=
said=$(configure no_cuda_optional "${no_cuda[@]}" 2>&1) || fail "$said"
[[ $said == *"without the optional component cuda: no CUDA toolkit was found"* ]] || fail "no reason: $said"
"$CMAKE" --build "$WORK/no_cuda_optional"
[[ ! -e $WORK/no_cuda_optional/cuda && -x $WORK/no_cuda_optional/kernel_helper ]] || fail "wrong programs without CUDA"

# A toolkit that is too old: nvcc and a header are all that CMake looks at.
old=$WORK/cuda-11.8
mkdir -p "$old/bin" "$old/include" "$old/lib64"
cat >"$old/bin/nvcc" <<'TEXT'
#!/bin/sh
echo "Cuda compilation tools, release 11.8, V11.8.89"
TEXT
chmod +x "$old/bin/nvcc"
echo '#define CUDART_VERSION 11080' >"$old/include/cuda_runtime.h"
cp "$old/include/cuda_runtime.h" "$old/include/cuda.h"
touch "$old/lib64/libcudart.so"
refused "component cuda: it needs CUDA 12 or later, and $old/bin has 11.8" old_cuda "${find[@]}" \
  "-DCUDAToolkit_ROOT=$old" -Dcomponents=cuda -Doptional_components=
