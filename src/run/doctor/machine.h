// What of a machine a recorded run needs, asked of the system itself.
//
// Thread safety: reads and tries the system; one thread.

#ifndef TTRACE_SRC_RUN_DOCTOR_MACHINE_H_
#define TTRACE_SRC_RUN_DOCTOR_MACHINE_H_

#include <string>

#include "src/run/doctor/health.h"

namespace ttrace {

// Whether a trace can be written below `folder`, and how much of it. Tries it.
void LookAtFolder(const std::string& folder, HealthList* out);

// Shared memory (`folder` is /dev/shm), by which loaders and gloo pass tensors.
void LookAtSharedMemory(const std::string& folder, HealthList* out);

// Memory and cores that this process may use.
void LookAtMemoryAndCores(HealthList* out);

// Limits of this process, which ranks inherit.
void LookAtLimits(HealthList* out);

// Whether ranks of one machine can reach each other.
void LookAtPorts(HealthList* out);

// The driver of the machine's GPUs as the kernel has it, "" without one.
std::string GpuDriver();

// Other commands called ttrace in the folders of `path` (PATH), before `own`,
// which is the folder of this one.
void LookAtPath(const std::string& path, const std::string& own,
                HealthList* out);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_DOCTOR_MACHINE_H_
