# Every third-party library, in one place, with what the systems call it. Nothing is vendored or
# downloaded. Why each one: see ARCHITECTURE.md, "Dependencies".

set(TTRACE_LIBRARY_VERSIONS "")  # "fmt 9.1.0, ...": for `ttrace version`
set(TTRACE_MISSING "")

# What is wrong is said of all libraries at once: each try of pip takes a while.
macro(ttrace_misses words conda debian fedora)
  string(APPEND TTRACE_MISSING "\n    ${words}")
  string(APPEND TTRACE_MISSING_CONDA " ${conda}")
  string(APPEND TTRACE_MISSING_DEBIAN " ${debian}")
  string(APPEND TTRACE_MISSING_FEDORA " ${fedora}")
endmacro()

# ttrace_library(<find_package's name> <least version or ""> <conda-forge> <Debian, Ubuntu> <Fedora>)
macro(ttrace_library name version conda debian fedora)
  find_package(${name} ${version} CONFIG QUIET)
  if(${name}_FOUND)
    string(APPEND TTRACE_LIBRARY_VERSIONS ", ${name} ${${name}_VERSION}")
  else()
    set(words "${name} ${version}")
    if(${name}_CONSIDERED_CONFIGS)
      string(APPEND words " (unfit: ${${name}_CONSIDERED_CONFIGS}, ${${name}_CONSIDERED_VERSIONS})")
    endif()
    ttrace_misses("${words}" ${conda} ${debian} ${fedora})
  endif()
endmacro()

ttrace_library(hwy 1.0.3 libhwy libhwy-dev highway-devel)
ttrace_library(simdjson "" simdjson libsimdjson-dev simdjson-devel)
ttrace_library(nlohmann_json 3.11 nlohmann_json nlohmann-json3-dev json-devel)
ttrace_library(CLI11 "" cli11 libcli11-dev cli11-devel)
ttrace_library(fmt "" fmt libfmt-dev fmt-devel)
ttrace_library(TBB "" tbb-devel libtbb-dev tbb-devel)
find_path(XXHASH_INCLUDE_DIR xxhash.h)
if(XXHASH_INCLUDE_DIR)
  file(STRINGS ${XXHASH_INCLUDE_DIR}/xxhash.h lines REGEX "define XXH_VERSION_(MAJOR|MINOR|RELEASE)")
  string(REGEX REPLACE "[^0-9;]" "" version "${lines}")
  string(REPLACE ";" "." version "${version}")
  string(APPEND TTRACE_LIBRARY_VERSIONS ", xxHash ${version}")
else()
  ttrace_misses(xxHash xxhash libxxhash-dev xxhash-devel)
endif()
# Its headers alone, which is how src/project/toml_table.h includes them.
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h)
if(TOMLPLUSPLUS_INCLUDE_DIR)
  file(STRINGS ${TOMLPLUSPLUS_INCLUDE_DIR}/toml++/impl/version.h lines
    REGEX "define TOML_LIB_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE "[^0-9;]" "" version "${lines}")
  string(REPLACE ";" "." version "${version}")
  string(APPEND TTRACE_LIBRARY_VERSIONS ", toml++ ${version}")
else()
  ttrace_misses(toml++ tomlplusplus libtomlplusplus-dev tomlplusplus-devel)
endif()
string(SUBSTRING "${TTRACE_LIBRARY_VERSIONS}  " 2 -1 TTRACE_LIBRARY_VERSIONS)
string(STRIP "${TTRACE_LIBRARY_VERSIONS}" TTRACE_LIBRARY_VERSIONS)

if(TTRACE_MISSING)
  message(FATAL_ERROR
    "These libraries are needed to compile ttrace, and not found:${TTRACE_MISSING}\n"
    "  Install them:\n"
    "    conda: conda install -c conda-forge${TTRACE_MISSING_CONDA}\n"
    "    Debian, Ubuntu: apt-get install${TTRACE_MISSING_DEBIAN}\n"
    "    Fedora: dnf install${TTRACE_MISSING_FEDORA}\n"
    "  Where they are installed elsewhere, name the folder in CMAKE_PREFIX_PATH.\n"
    "  A wheel needs none of them: see docs/install.md.\n")
endif()

if(TTRACE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(TTRACE_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()
