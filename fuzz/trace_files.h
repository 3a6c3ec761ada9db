// TraceFiles: what lies where in a trace folder, for those who damage it.
//
// Thread safety: plain values.

#ifndef TTRACE_FUZZ_TRACE_FILES_H_
#define TTRACE_FUZZ_TRACE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "src/trace/record_table.h"

namespace ttrace {

struct RankFiles {
  int rank = 0;
  std::string folder;
  std::string meta;
  std::string index;
  std::vector<std::string> segments;
  std::vector<Extent> tensors;  // those with bytes
};

struct TraceFiles {
  std::string folder;
  std::string manifest;
  std::vector<RankFiles> ranks;
};

// Of a trace that can be opened; aborts otherwise.
TraceFiles FindTraceFiles(const std::string& folder);

// Whole small files. Abort if the system refuses.
std::string ReadText(const std::string& path);
void WriteText(const std::string& path, const std::string& text);

// The lines of `index`, each with its '\n'.
std::vector<std::string> SplitLines(const std::string& index);

// An index of these lines with checksums as a writer would have made them: what
// a process wrote that died, or what somebody forged.
std::string Chained(const std::string& meta_json,
                    const std::vector<std::string>& lines);

}  // namespace ttrace

#endif  // TTRACE_FUZZ_TRACE_FILES_H_
