#!/usr/bin/env bash
# Configures a build of the given preset (default: ci) unless it is configured
# as the presets say now.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
preset=${1:-ci}
# The build file is written last, so that it stands only for a whole success.
if [[ ! -f build/$preset/build.ninja || CMakePresets.json -nt build/$preset/build.ninja ]]; then
  cmake --preset "$preset" > /dev/null
fi
