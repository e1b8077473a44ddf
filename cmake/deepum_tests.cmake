# How tests become CTest tests. Names: <lane><folder>.<file>, for example `core.block` or `asan.core.block`; the lane is
# empty in the main build, and lets one CTest run show several builds together.

set(DEEPUM_LANE "" CACHE STRING "Prefix of this build's test names, for example 'asan.'")

find_package(doctest REQUIRED)

add_library(deepum_test_flags INTERFACE)
target_include_directories(deepum_test_flags INTERFACE "${PROJECT_SOURCE_DIR}/tests")
target_link_libraries(deepum_test_flags INTERFACE deepum_own doctest::doctest ${deepum_tool_libraries})
target_compile_options(deepum_test_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-O1>")  # compiling is what takes the time
target_compile_definitions(
  deepum_test_flags INTERFACE DOCTEST_CONFIG_SUPER_FAST_ASSERTS DEEPUM_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                              DEEPUM_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")

# doctest's main and the shared test code, compiled once and linked into every test program.
file(GLOB deepum_test_support CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/support/*.cpp")
add_library(deepum_test_support OBJECT ${deepum_test_support})
target_link_libraries(deepum_test_support PUBLIC deepum_test_flags)

# Precompiled headers for the test files; doctest's main cannot use them, so they are built with a target of their own.
# The headers of the library are not among them: they change too often.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/checks/precompiled.cpp" CONTENT "// Owns the precompiled headers.\n")
set(deepum_test_precompiled_headers
    <algorithm>
    <atomic>
    <chrono>
    <cstdint>
    <deque>
    <functional>
    <map>
    <memory>
    <mutex>
    <optional>
    <random>
    <set>
    <sstream>
    <string>
    <thread>
    <unordered_map>
    <vector>
    <doctest/doctest.h>)
function(deepum_add_test_precompiled name)
  add_library(${name} OBJECT "${PROJECT_BINARY_DIR}/checks/precompiled.cpp")
  target_link_libraries(${name} PRIVATE deepum_test_flags)
  target_compile_options(${name} PRIVATE ${ARGN})
  target_precompile_headers(${name} PRIVATE ${deepum_test_precompiled_headers})
endfunction()
deepum_add_test_precompiled(deepum_test_precompiled)
if(DEEPUM_SANITIZE STREQUAL "address")
  deepum_add_test_precompiled(deepum_test_precompiled_unoptimised -O0)
endif()

# deepum_register_test(<name> [LABELS <label>...] [RESOURCE_LOCK <lock>] [COST <number>] COMMAND <command>...)
# Any command as a test. Exit status 77 means that it could not be run here. COST says about how many seconds it takes,
# where these are many: the longest begin first, so that none runs alone in the end.
function(deepum_register_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "RESOURCE_LOCK;COST" "LABELS;COMMAND")
  add_test(NAME "${DEEPUM_LANE}${name}" COMMAND ${arg_COMMAND} WORKING_DIRECTORY "${PROJECT_BINARY_DIR}")
  set_tests_properties("${DEEPUM_LANE}${name}" PROPERTIES LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77)
  if(arg_COST)
    set_tests_properties("${DEEPUM_LANE}${name}" PROPERTIES COST "${arg_COST}")
  endif()
  if(arg_RESOURCE_LOCK)
    set_tests_properties("${DEEPUM_LANE}${name}" PROPERTIES RESOURCE_LOCK "${arg_RESOURCE_LOCK}")
  endif()
endfunction()

# With `intercept_tls_get_addr` LeakSanitizer of GCC up to 13 and LLVM up to 16 crashes now and then after a program has had
# threads: it takes a block of the allocator for a header that glibc has not had since 2.25 (reviews.llvm.org/D147459).
set(deepum_sanitizer_environment
    "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1;UBSAN_OPTIONS=print_stacktrace=1"
    "ASAN_OPTIONS=intercept_tls_get_addr=0")

# deepum_add_test(<folder> <file>...)
# One doctest program deepum_<folder>_test out of all the files, and one CTest test for each file. It is compiled as one
# unit, since what a file costs is the library's headers; so each file has its tests in a namespace of its own.
function(deepum_add_test folder)
  set(program deepum_${folder}_test)
  add_executable(${program} ${ARGN})
  target_link_libraries(${program} PRIVATE deepum_test_support)
  set_target_properties(${program} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)

  # Under AddressSanitizer most of the time goes into optimising tests; the library that they are linked with is optimised
  # all the same. It pays where much is computed, and in the others it does not.
  if(DEEPUM_SANITIZE STREQUAL "address" AND NOT folder MATCHES "^(arena|cuda|engine|property)$")
    target_compile_options(${program} PRIVATE -O0)
    target_precompile_headers(${program} REUSE_FROM deepum_test_precompiled_unoptimised)
  else()
    target_precompile_headers(${program} REUSE_FROM deepum_test_precompiled)
  endif()

  set(labels ${folder})
  set(cost 0)
  if(folder MATCHES "^(arena|cuda|property)$")
    set(cost 20)
  endif()
  if(DEEPUM_SANITIZE)
    list(APPEND labels sanitizer)
  endif()
  if(DEEPUM_SANITIZE STREQUAL "thread")
    set(cost 100)
  endif()
  foreach(file IN LISTS ARGN)
    get_filename_component(name "${file}" NAME_WE)
    string(REGEX REPLACE "_test$" "" name "${name}")
    file(RELATIVE_PATH path "${PROJECT_SOURCE_DIR}" "${file}")
    deepum_register_test(${folder}.${name} LABELS ${labels} COMMAND ${deepum_launcher} "$<TARGET_FILE:${program}>"
                         "--source-file=*${path}")
    # A filter that matches nothing is a success for doctest, and a mistake here.
    set_tests_properties(
      "${DEEPUM_LANE}${folder}.${name}"
      PROPERTIES FAIL_REGULAR_EXPRESSION "test cases: +0 "
                 COST ${cost}
                 ENVIRONMENT "${deepum_sanitizer_environment}")
  endforeach()
endfunction()

# deepum_add_fuzz_test(<file>)
# NAME_fuzz.cpp, which defines LLVMFuzzerTestOneInput, as the CTest test fuzz.NAME: a bounded number of inputs made from
# tests/fuzz/corpus/NAME. With DEEPUM_LIBFUZZER (clang only) fuzz.NAME.libfuzzer searches for a bounded time too.
option(DEEPUM_LIBFUZZER "Build the fuzzers with libFuzzer too" OFF)
function(deepum_add_fuzz_test file)
  get_filename_component(name "${file}" NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" name "${name}")
  get_filename_component(dir "${file}" DIRECTORY)

  set(program deepum_${name}_fuzz)
  add_executable(${program} "${file}" "${dir}/fuzz_main.cpp")
  target_link_libraries(${program} PRIVATE deepum_test_flags deepum_replay)
  deepum_register_test(fuzz.${name} LABELS fuzz COMMAND ${deepum_launcher} "$<TARGET_FILE:${program}>"
                       "${dir}/corpus/${name}")

  if(DEEPUM_LIBFUZZER)
    set(program deepum_${name}_libfuzzer)
    set(found "${PROJECT_BINARY_DIR}/fuzz/${name}")
    file(MAKE_DIRECTORY "${found}")
    get_target_property(replay_sources deepum_replay SOURCES)
    add_executable(${program} "${file}" ${replay_sources})  # all of it instrumented
    target_link_libraries(${program} PRIVATE deepum_test_flags nlohmann_json::nlohmann_json ZLIB::ZLIB)
    target_include_directories(${program} PRIVATE "${PROJECT_SOURCE_DIR}/bench")
    set(flags -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -g1)
    target_compile_options(${program} PRIVATE ${flags})
    target_link_options(${program} PRIVATE ${flags})
    deepum_register_test(
      fuzz.${name}.libfuzzer LABELS fuzz COMMAND "$<TARGET_FILE:${program}>" -max_total_time=60 -seed=1 -rss_limit_mb=2048
      -malloc_limit_mb=1024 "-artifact_prefix=${found}-" "${found}" "${dir}/corpus/${name}")
  endif()
endfunction()
