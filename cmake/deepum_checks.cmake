# Checks of the source as CTest tests, each a direct command, so that one failure does not hide the others:
# format, clang-tidy, every header alone, the umbrella in two translation units, nvcc.

set(checks_dir "${PROJECT_BINARY_DIR}/checks")
set(cuda_headers_regex "^cuda/|^cuda\\.hpp$|^interop/(cccl|cub|cublas|cublas_gemm|cudnn|cudnn_algorithms|cudnn_shapes|nvtx|temporary_storage|thrust)\\.hpp$")
# As programs with the reader of the driver's faults compile them.
set(kernel_helper_flags -DDEEPUM_KERNEL_HELPER=1 "-I${PROJECT_SOURCE_DIR}/kernel-helper")

deepum_register_test(format LABELS check COMMAND "${PROJECT_SOURCE_DIR}/run" format --check)

# --- Every header compiles alone, and twice in one translation unit: tests/headers/alone.py. ---
set(cuda_include_flags "")
foreach(dir IN LISTS CUDAToolkit_INCLUDE_DIRS)
  list(APPEND cuda_include_flags -isystem "${dir}")
  if(EXISTS "${dir}/cccl")  # since CUDA 13 Thrust, CUB and libcu++ lie there, and nvcc alone finds them by itself
    list(APPEND cuda_include_flags -isystem "${dir}/cccl")
  endif()
endforeach()
separate_arguments(check_flags UNIX_COMMAND "${CMAKE_CXX_FLAGS}")
list(APPEND check_flags -std=c++20 -pthread ${deepum_warnings} -Werror "-I${PROJECT_SOURCE_DIR}/include")
if(DEEPUM_HAVE_CUDA)
  list(APPEND check_flags ${kernel_helper_flags} ${cuda_include_flags})
endif()

find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_Interpreter_FOUND)
  set(without "")
  if(NOT DEEPUM_HAVE_CUDA)
    set(without "--without=${cuda_headers_regex}")
  endif()
  set(parts 4)
  foreach(part RANGE 1 ${parts})
    deepum_register_test(
      headers.alone_${part} LABELS check COST 60 COMMAND Python3::Interpreter -B "${PROJECT_SOURCE_DIR}/tests/headers/alone.py"
      "${PROJECT_SOURCE_DIR}/include" ${part} ${parts} ${without} -- "${CMAKE_CXX_COMPILER}" ${check_flags})
  endforeach()
else()
  message(STATUS "deepum: no Python, the headers are not compiled alone")
endif()

# --- clang-tidy: the headers in few translation units, since the standard library in each is what takes the time, then
# the programs. ---
find_program(deepum_clang_tidy NAMES clang-tidy-16 clang-tidy)
if(deepum_clang_tidy)
  set(tidy "${deepum_clang_tidy}" --quiet "--config-file=${PROJECT_SOURCE_DIR}/.clang-tidy")
  set(tidy_flags -std=c++20 -pthread "-I${PROJECT_SOURCE_DIR}/include")
  set(tidy_units library)
  if(DEEPUM_HAVE_CUDA)
    list(APPEND tidy_flags ${kernel_helper_flags} ${cuda_include_flags})
    list(APPEND tidy_units cuda)
  endif()
  if(DEFINED ENV{DEEPUM_FULL_TESTS})
    list(APPEND tidy_units interop)  # it analyses Thrust too
  endif()
  foreach(header IN LISTS deepum_headers)
    file(RELATIVE_PATH path "${PROJECT_SOURCE_DIR}/include" "${header}")
    if(path MATCHES "^deepum/interop/")
      set(unit interop)
    elseif(path MATCHES "^deepum/cuda(/|\\.hpp$)")
      set(unit cuda)
    else()
      set(unit library)
    endif()
    if(NOT path MATCHES "/src\\.hpp$")
      string(APPEND tidy_unit_${unit} "#include <${path}>\n")
    endif()
  endforeach()
  foreach(unit IN LISTS tidy_units)
    file(CONFIGURE OUTPUT "${checks_dir}/tidy/${unit}.cpp" CONTENT "${tidy_unit_${unit}}")
    deepum_register_test(tidy.${unit} LABELS check COST 50 COMMAND ${tidy} "--header-filter=/include/deepum/"
                         "${checks_dir}/tidy/${unit}.cpp" -- ${tidy_flags})
  endforeach()

  file(GLOB_RECURSE program_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.cpp")
  if(DEEPUM_BUILD_EXAMPLES AND DEFINED ENV{DEEPUM_FULL_TESTS})  # each analyses all headers once more
    foreach(source IN LISTS program_sources)
      file(RELATIVE_PATH name "${PROJECT_SOURCE_DIR}" "${source}")
      string(REGEX REPLACE "\\.cpp$" "" name "${name}")
      string(REPLACE "/" "." name "${name}")
      deepum_register_test(tidy.${name} LABELS check COMMAND ${tidy} -p "${PROJECT_BINARY_DIR}"
                           --extra-arg=-Wno-unknown-warning-option "--header-filter=/examples/" "${source}")
    endforeach()
  endif()
else()
  message(STATUS "deepum: no clang-tidy, its check is left out")
endif()

# --- The umbrella in two translation units: a function that is not inline would be defined twice. ---
if(EXISTS "${PROJECT_SOURCE_DIR}/include/deepum/deepum.hpp")
  add_executable(deepum_odr_test "${PROJECT_SOURCE_DIR}/tests/odr/first.cpp" "${PROJECT_SOURCE_DIR}/tests/odr/second.cpp")
  target_link_libraries(deepum_odr_test PRIVATE deepum_own_flags)  # every definition in both, as users have it
  target_compile_options(deepum_odr_test PRIVATE -O0)
  deepum_register_test(odr LABELS check COMMAND deepum_odr_test)
endif()

# --- nvcc compiles the umbrella; no GPU is needed. ---
if(DEEPUM_HAVE_CUDA)
  deepum_register_test(
    nvcc.sm_75_sm_90 LABELS check cuda COST 60 COMMAND "${CMAKE_CUDA_COMPILER}" -std=c++20 -gencode arch=compute_75,code=sm_75
    -gencode arch=compute_90,code=sm_90 --expt-relaxed-constexpr -Werror all-warnings "-I${PROJECT_SOURCE_DIR}/include"
    ${kernel_helper_flags} -c "${PROJECT_SOURCE_DIR}/tests/nvcc/umbrella.cu" -o "${checks_dir}/umbrella.o")
  deepum_register_test(
    nvcc.interop LABELS check cuda COST 60 COMMAND "${CMAKE_CUDA_COMPILER}" -std=c++20 -gencode arch=compute_90,code=sm_90
    --expt-relaxed-constexpr -Werror all-warnings "-I${PROJECT_SOURCE_DIR}/include" ${kernel_helper_flags} -c
    "${PROJECT_SOURCE_DIR}/tests/nvcc/interop.cu" -o "${checks_dir}/interop.o")
  deepum_register_test(
    nvcc.common_names LABELS check cuda COMMAND "${CMAKE_CUDA_COMPILER}" -std=c++20 -gencode arch=compute_90,code=sm_90
    --expt-relaxed-constexpr -Xcompiler -Wshadow,-Werror "-I${PROJECT_SOURCE_DIR}/include" -c
    "${PROJECT_SOURCE_DIR}/tests/headers/common_names.cu" -o "${checks_dir}/common_names.o")
  # Fetches headers, and so belongs to ./run test --full, which says where to keep them.
  if(DEFINED ENV{DEEPUM_OLDER_TOOLKITS})
    deepum_register_test(nvcc.older_toolkits LABELS check cuda COMMAND
                         "${PROJECT_SOURCE_DIR}/tests/nvcc/older_toolkits.sh" "$ENV{DEEPUM_OLDER_TOOLKITS}")
  endif()
endif()
