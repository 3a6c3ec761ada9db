// A check in parts on a Ray cluster. Ray is Python's: this process becomes
// `python -m ttrace.engine.on_ray`, which runs `ttrace check --part` there and
// `ttrace merge` here.

#ifndef TTRACE_SRC_CLI_RAY_ENGINE_H_
#define TTRACE_SRC_CLI_RAY_ENGINE_H_

#include <string>

#include "src/check/check_options.h"

namespace ttrace {

struct RayCheck {
  CheckOptions check;
  int parts = 0;        // 0: as many as the cluster has CPUs
  std::string address;  // empty: a cluster is started here
  std::string output;   // folder of the result; empty: none
  bool verbose = false;
};

// Returns only if that process cannot be started, with the exit code.
int CheckOnRay(const RayCheck& on_ray);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_RAY_ENGINE_H_
