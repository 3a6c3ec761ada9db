// What the interpreter of the ranks has: torch, frameworks, and whether
// capture's import hook is the one that it loads.
//
// Thread safety: starts processes; one thread.

#ifndef TTRACE_SRC_RUN_DOCTOR_PYTHON_H_
#define TTRACE_SRC_RUN_DOCTOR_PYTHON_H_

#include <string>
#include <vector>

#include "src/run/doctor/health.h"
#include "src/run/launch.h"
#include "ttrace/status.h"

namespace ttrace {

struct PythonToLookAt {
  std::string interpreter;  // a path, or a name that PATH finds
  // The Python package's folder `ttrace`: `hook` and `doctor` are in it.
  std::string package_folder;
  std::vector<std::string> environment;  // as the user's commands have it
  std::string scratch;                   // a folder for what is written
  double timeout_seconds = 0;            // of each look; 0: none
  const InterruptFlag* interrupt = nullptr;
};

// Whether torch is there and was tried: what a trial needs. Fails if the
// interpreter cannot be asked: with kNotFound if it does not exist, else kIo.
Result<bool> LookAtPython(const PythonToLookAt& python, HealthList* out);

// Records a step of two ranks and looks at what they left. Some seconds.
// REQUIRES: torch is there
void TryToRecord(const PythonToLookAt& python, HealthList* out);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_DOCTOR_PYTHON_H_
