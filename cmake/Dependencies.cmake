# Every third-party library, in one place. All are Debian packages, installed by
# scripts/setup_system.sh; nothing is vendored or downloaded. Why each one: see
# ARCHITECTURE.md, "Dependencies".
find_package(hwy 1.0.3 REQUIRED)
find_package(simdjson REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(fmt REQUIRED)
find_package(TBB REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
# Its headers alone, which is how src/project/toml_table.h includes them.
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)

if(TTRACE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
if(TTRACE_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()
