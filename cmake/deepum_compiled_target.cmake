# The targets deepum::compiled and, once there is deepum::cuda, deepum::compiled_cuda: the headers with what can be
# compiled once compiled once (<deepum/src.hpp>, <deepum/cuda/src.hpp>), by the project that links them. Read by this
# source tree and by its packages, again where deepum::cuda was found later.
function(deepum_add_compiled name source)
  if(NOT TARGET deepum::${name})
    set(file "${CMAKE_CURRENT_BINARY_DIR}/deepum_${name}.cpp")
    file(CONFIGURE OUTPUT "${file}" CONTENT "#include <deepum/${source}>\n")
    add_library(deepum_${name} STATIC EXCLUDE_FROM_ALL "${file}")
    add_library(deepum::${name} ALIAS deepum_${name})
    target_link_libraries(deepum_${name} PUBLIC ${ARGN})
    set_target_properties(deepum_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
endfunction()

deepum_add_compiled(compiled src.hpp deepum::deepum)
target_compile_definitions(deepum_compiled PUBLIC DEEPUM_SEPARATE_COMPILATION)
if(TARGET deepum::cuda)
  deepum_add_compiled(compiled_cuda cuda/src.hpp deepum::compiled deepum::cuda)
  # The face for C and C++17: its users get the header and the CUDA runtime, and neither C++20 nor a definition.
  if(NOT TARGET deepum::c)
    file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/deepum_c.cpp" CONTENT "#include <deepum/c/src.hpp>\n")
    add_library(deepum_c STATIC EXCLUDE_FROM_ALL "${CMAKE_CURRENT_BINARY_DIR}/deepum_c.cpp")
    add_library(deepum::c ALIAS deepum_c)
    target_link_libraries(deepum_c PRIVATE deepum::compiled_cuda PUBLIC CUDA::cudart)
    target_include_directories(deepum_c INTERFACE $<TARGET_PROPERTY:deepum::deepum,INTERFACE_INCLUDE_DIRECTORIES>)
    set_target_properties(deepum_c PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
endif()
