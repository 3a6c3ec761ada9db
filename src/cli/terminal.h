// What is different when a person looks on: colour and width.

#ifndef TTRACE_SRC_CLI_TERMINAL_H_
#define TTRACE_SRC_CLI_TERMINAL_H_

#include "src/report/render.h"

namespace ttrace {

// For standard output: colour only on a terminal and unless NO_COLOR is set to
// something (no-color.org), and the width of the terminal.
TerminalOptions StandardOutputOptions();

// Columns of the terminal that standard error is, as it is now.
int WidthOfStandardError();

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_TERMINAL_H_
