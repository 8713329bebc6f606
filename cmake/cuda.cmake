# The CUDA backend, or a file of stubs where there is no nvcc. Either is the object library compact_backend.
set(COMPACT_HAS_CUDA OFF)
if(COMPACT_CUDA STREQUAL "OFF")
  message(STATUS "CUDA backend: not built, COMPACT_CUDA is OFF")
else()
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)  # where NVIDIA's packages put it, often not on PATH
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # sm_80 code serves all cards of compute capability 8.x, the PTX of 9.0 all that are newer than that.
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    endif()
    if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
    endif()
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # Debian's CMake 3.25 does not know that nvcc has C++20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    find_package(CUDAToolkit REQUIRED)
    set(COMPACT_HAS_CUDA ON)
    message(STATUS "CUDA backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
  elseif(COMPACT_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA backend: not built, nvcc not found (put it on PATH, or set CMAKE_CUDA_COMPILER)")
  else()
    message(FATAL_ERROR "COMPACT_CUDA is ON, but nvcc was not found; put it on PATH, or set CMAKE_CUDA_COMPILER")
  endif()
endif()

include(cmake/nccl.cmake)

# What of the backend is C++: calls of the runtime and of libraries. The kernels are the .cu files.
file(GLOB cuda_host CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cpp ${PROJECT_SOURCE_DIR}/kernels/*_cuda.cpp)
list(FILTER cuda_host EXCLUDE REGEX "/no_cuda\\.cpp$")
list(APPEND cuda_host ${nccl_host})
file(GLOB cuda_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*_cuda.cu ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
set(cuda_stubs ${PROJECT_SOURCE_DIR}/src/cuda/no_cuda.cpp ${PROJECT_SOURCE_DIR}/src/cuda/peaks.cpp
               ${PROJECT_SOURCE_DIR}/kernels/no_cuda.cpp ${nccl_host})

if(COMPACT_HAS_CUDA)
  add_library(compact_backend OBJECT ${cuda_host} ${cuda_kernels} ${nccl_card}
                                     ${PROJECT_SOURCE_DIR}/kernels/card/cublaslt_library.cpp)
  target_compile_definitions(compact_backend PRIVATE COMPACT_CUDA_LIBRARIES="${CUDAToolkit_LIBRARY_DIR}"
                                                     COMPACT_NCCL_LIBRARIES="${nccl_folder}")
  target_include_directories(compact_backend PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}
                             ${PROJECT_SOURCE_DIR}/kernels/card)
  target_include_directories(compact_backend SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  if(COMPACT_HAS_NCCL)
    target_include_directories(compact_backend SYSTEM PRIVATE ${NCCL_INCLUDE})
  endif()
  # No contraction of a*b+c, as on the host: the same bits as the emulation's.
  target_compile_options(
    compact_backend
    PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Wshadow -ffp-contract=off>
            "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-Xcompiler=-Wall,-Wextra,-Wshadow>")
  if(COMPACT_WERROR)
    target_compile_options(compact_backend PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
                                                   $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
  endif()
  target_link_libraries(compact_backend PUBLIC CUDA::cudart_static ${CMAKE_DL_LIBS} PRIVATE fmt::fmt
                        PkgConfig::XXHASH)
else()
  add_library(compact_backend OBJECT ${cuda_stubs})
  target_link_libraries(compact_backend PRIVATE compact_flags)
endif()
