// The command as a native binary, for sanitizers and for tests that need no
// Python. Users get the same code through the console script.

#include "src/cli/run.h"

int main(int argc, char** argv) { return ttrace::RunCli(argc, argv); }
