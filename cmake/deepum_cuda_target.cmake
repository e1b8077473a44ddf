# The target deepum::cuda of this source tree, where there is a toolkit: the CUDA runtime and, on Linux, the reader of the
# driver's fault events. No CUDA compiler is needed. The install tree has its own in deepumConfig.cmake.in.
if(DEEPUM_CUDA STREQUAL "OFF")
  return()
endif()

if(DEEPUM_CUDA STREQUAL "ON")
  find_package(CUDAToolkit 12 REQUIRED)
else()
  find_package(CUDAToolkit 12 QUIET)
endif()

if(CUDAToolkit_FOUND AND TARGET CUDA::cudart AND NOT TARGET deepum::cuda)
  add_library(deepum_cuda INTERFACE)
  add_library(deepum::cuda ALIAS deepum_cuda)
  target_link_libraries(deepum_cuda INTERFACE deepum::deepum CUDA::cudart)
  # Page faults from the driver. CUPTI, the second choice, is looked for at run time.
  if(TARGET deepum::kernel_helper)
    target_link_libraries(deepum_cuda INTERFACE deepum::kernel_helper)
    target_compile_definitions(deepum_cuda INTERFACE DEEPUM_KERNEL_HELPER=1)
  endif()
  target_link_libraries(deepum_cuda INTERFACE ${CMAKE_DL_LIBS})
  include("${CMAKE_CURRENT_LIST_DIR}/deepum_compiled_target.cmake")
endif()
