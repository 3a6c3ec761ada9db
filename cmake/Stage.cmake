# What nearly every file includes, parsed once for all targets that are compiled
# alike: without optimisation reading headers is most of the work.
function(ttrace_precompile target owner)
  if(NOT TTRACE_PRECOMPILE_HEADERS)
    return()
  endif()
  # ccache reuses what was compiled with such a file only if that file holds no
  # time of its making.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
  if(target STREQUAL owner)
    target_precompile_headers(${target} PRIVATE
      <algorithm> <cmath> <cstring> <filesystem> <functional> <limits> <map>
      <memory> <optional> <set> <string> <tuple> <utility> <variant> <vector>
      <fmt/format.h> <nlohmann/json.hpp> ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()

# ttrace_stage(<name> [ONCE_A_RUN] [USES <stages>...] [LIBS <targets>...])
#
# ONCE_A_RUN: what is done once, or once a finding, takes no time worth
# optimising for, but a third less to compile without.
#
# One folder under src/ = one static library = one stage. Sources are globbed,
# because a stage is by definition all that lies in its folder: *_test.cc goes
# into <name>_test, *_bench.cc into <name>_bench, the rest into the library.
function(ttrace_stage name)
  cmake_parse_arguments(ARG "ONCE_A_RUN" "" "USES;LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
  list(FILTER sources EXCLUDE REGEX "/native_main/")
  set(tests ${sources})
  set(benches ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER benches INCLUDE REGEX "_bench\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|bench)\\.cc$")

  set(target ttrace_stage_${name})
  list(TRANSFORM ARG_USES PREPEND ttrace_stage_)
  if(NOT sources)
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${ARG_USES})
    return()
  endif()
  add_library(${target} STATIC ${sources})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  target_include_directories(${target} PUBLIC
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}
    ${PROJECT_BINARY_DIR}/generated)
  target_include_directories(${target} SYSTEM PUBLIC ${XXHASH_INCLUDE_DIR} ${TOMLPLUSPLUS_INCLUDE_DIR})
  target_link_libraries(${target} PUBLIC ${ARG_USES} PRIVATE ${ARG_LIBS})

  # Half of the time of tests under sanitizers is saved by a little optimisation of what most of
  # them run, for less than that to compile.
  if(ARG_ONCE_A_RUN)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
    ttrace_precompile(${target} ttrace_stage_experiment)
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Debug>:-O1>
      $<$<AND:$<CONFIG:Debug>,$<CXX_COMPILER_ID:Clang>>:SHELL:-mllvm -inline-threshold=50>)
    ttrace_precompile(${target} ttrace_stage_base)
  endif()
  # Headers and their templates are most of what a file takes.
  if(TTRACE_UNITY_BUILD)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()

  if(TTRACE_BUILD_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE ${target} ${ARG_LIBS}
      GTest::gmock GTest::gtest_main)
    ttrace_precompile(${name}_test base_test <gmock/gmock.h> <gtest/gtest.h>)
    if(TTRACE_UNITY_BUILD)
      set_target_properties(${name}_test PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    endif()
    gtest_discover_tests(${name}_test DISCOVERY_MODE PRE_TEST
      TEST_PREFIX "${name}." PROPERTIES LABELS unit)
  endif()
  if(TTRACE_BUILD_BENCHMARKS AND benches)
    add_executable(${name}_bench ${benches})
    target_link_libraries(${name}_bench PRIVATE ${target} ${ARG_LIBS}
      benchmark::benchmark_main)
  endif()
endfunction()

# What must be the same bits on every machine may not have its products
# contracted with sums to fused multiply-adds where there are such.
set_source_files_properties(
  ${PROJECT_SOURCE_DIR}/src/numeric/noise.cc
  ${PROJECT_SOURCE_DIR}/src/numeric/random_kernel.cc
  ${PROJECT_SOURCE_DIR}/src/numeric/random_tensor_test.cc
  ${PROJECT_SOURCE_DIR}/src/numeric/sketch_kernel.cc
  ${PROJECT_SOURCE_DIR}/src/numeric/widen.cc
  ${PROJECT_SOURCE_DIR}/src/numeric/widen_kernel.cc
  ${PROJECT_SOURCE_DIR}/src/numeric/widen_test.cc
  ${PROJECT_SOURCE_DIR}/src/compare/compare_exact.cc
  ${PROJECT_SOURCE_DIR}/src/compare/compare_double_kernel.cc
  ${PROJECT_SOURCE_DIR}/src/step/step_kernel.cc
  PROPERTIES COMPILE_OPTIONS -ffp-contract=off)

# Vector code that is not optimised runs at a hundredth of its speed: most of the time of tests
# under sanitizers. Checks of every pointer for being null or misaligned or for wrapping around make
# compare_kernel.cc, which compares any two of eleven formats, take eight times as long to compile:
# kernels load from any address, and wrong ones are what the address sanitizer is for.
file(GLOB_RECURSE kernels ${PROJECT_SOURCE_DIR}/src/*_kernel.cc)
list(APPEND kernels
  ${PROJECT_SOURCE_DIR}/src/numeric/noise.cc
  ${PROJECT_SOURCE_DIR}/src/numeric/random_tensor.cc)
set_property(SOURCE ${kernels} APPEND PROPERTY COMPILE_OPTIONS
  "$<$<CONFIG:Debug>:-O2;-fno-sanitize=null,alignment,object-size,pointer-overflow>")
# The common headers are parsed without optimisation.
set_property(SOURCE ${kernels} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
# Highway compiles such a file by including it again and again.
set_property(SOURCE ${kernels} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
