// Whether a command can be started at all, before anything else is: its
// program, and the script that Python or torchrun is given.
//
// Thread safety: reads the file system only.

#ifndef TTRACE_SRC_RUN_COMMAND_MISSING_PROGRAM_H_
#define TTRACE_SRC_RUN_COMMAND_MISSING_PROGRAM_H_

#include <string>

#include "ttrace/status.h"

namespace ttrace {

// `command`: for /bin/sh, run in `folder` with `path` as its PATH. Fails with
// kNotFound for a program or a script that is not there. Of what only a shell
// understands, more than one program, variables, builtins, nothing is said.
Status CheckProgramIsThere(const std::string& command,
                           const std::string& folder, const std::string& path);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_COMMAND_MISSING_PROGRAM_H_
