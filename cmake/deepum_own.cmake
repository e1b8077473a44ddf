# Flags and helpers for this repository's own targets. They hang on the targets deepum_own_flags and deepum_own, which is
# that and deepum::compiled, so that each program does not compile all of it again. They are linked privately and never
# installed, so that no warning, sanitizer or optimisation flag reaches a user of the library.

option(DEEPUM_WERROR "Warnings are errors in own targets" OFF)
set(DEEPUM_SANITIZE "" CACHE STRING "Sanitizer of own targets: empty, address (with undefined) or thread")
set_property(CACHE DEEPUM_SANITIZE PROPERTY STRINGS "" address thread)

set(deepum_warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overflows in std::string at -O3 that are not there (GCC bugs 105329 and 105651).
  list(APPEND deepum_warnings -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endif()
if(DEEPUM_WERROR)
  list(APPEND deepum_warnings -Werror)
endif()

set(deepum_sanitize_flags "")
if(DEEPUM_SANITIZE STREQUAL "address")
  # What AddressSanitizer sees as well, or what is not used here, would make compiling half as long again.
  set(deepum_sanitize_flags -fsanitize=address,undefined -fno-sanitize=null,alignment,object-size,vptr
                            -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND deepum_sanitize_flags "SHELL:--param asan-instrumentation-with-call-threshold=0")  # half the time to compile
  endif()
elseif(DEEPUM_SANITIZE STREQUAL "thread")
  set(deepum_sanitize_flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(DEEPUM_SANITIZE)
  message(FATAL_ERROR "DEEPUM_SANITIZE is '${DEEPUM_SANITIZE}'; it may be empty, address or thread")
endif()

add_library(deepum_own_flags INTERFACE)
target_link_libraries(deepum_own_flags INTERFACE deepum::deepum)
target_compile_options(deepum_own_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${deepum_warnings};${deepum_sanitize_flags}>")
target_link_options(deepum_own_flags INTERFACE ${deepum_sanitize_flags})
if(DEEPUM_SANITIZE)
  target_compile_definitions(deepum_own_flags INTERFACE DEEPUM_SANITIZED=1)
endif()

target_link_libraries(deepum_compiled PRIVATE deepum_own_flags)
add_library(deepum_own INTERFACE)
target_link_libraries(deepum_own INTERFACE deepum_own_flags deepum::compiled)
target_include_directories(deepum_own INTERFACE "${PROJECT_SOURCE_DIR}")  # program/, which programs share
if(TARGET deepum_compiled_cuda)
  target_link_libraries(deepum_compiled_cuda PRIVATE deepum_own_flags)
endif()

# Sanitizers place their shadow memory at fixed addresses, which strong address randomisation can collide with.
set(deepum_launcher "")
if(DEEPUM_SANITIZE)
  find_program(deepum_setarch setarch)
  if(deepum_setarch)
    execute_process(COMMAND "${deepum_setarch}" "${CMAKE_HOST_SYSTEM_PROCESSOR}" -R true RESULT_VARIABLE result
                    OUTPUT_QUIET ERROR_QUIET)
    if(result EQUAL 0)
      set(deepum_launcher "${deepum_setarch}" "${CMAKE_HOST_SYSTEM_PROCESSOR}" -R)
    endif()
  endif()
endif()

# What programs and tests may use; the library itself uses none of it.
set(deepum_tool_libraries "")
find_package(absl QUIET)
if(absl_FOUND)
  foreach(part IN ITEMS flags flags_parse flags_usage strings str_format flat_hash_map random_random status statusor
                        failure_signal_handler symbolize log log_initialize log_flags check)
    # The log library is younger than the Abseil of Debian 12 and Ubuntu 24.04.
    if(TARGET absl::${part})
      list(APPEND deepum_tool_libraries absl::${part})
    endif()
  endforeach()
endif()
find_package(nlohmann_json QUIET)
if(nlohmann_json_FOUND)
  list(APPEND deepum_tool_libraries nlohmann_json::nlohmann_json)
endif()
find_package(ZLIB QUIET)  # the replay alone needs it

# deepum_add_program(<name> <source>...)
# A program in <build>/bin with own flags, Abseil and JSON, and the CUDA runtime where there is CUDA.
function(deepum_add_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE deepum_own ${deepum_tool_libraries})
  if(DEEPUM_HAVE_CUDA)
    target_link_libraries(${name} PRIVATE deepum::compiled_cuda)
    target_compile_definitions(${name} PRIVATE DEEPUM_WITH_CUDA=1)
  endif()
endfunction()
