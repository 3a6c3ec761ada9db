// What `ttrace inspect` prints: pure text, made from a trace or a result.

#ifndef TTRACE_SRC_CLI_INSPECT_H_
#define TTRACE_SRC_CLI_INSPECT_H_

#include <memory>
#include <string>

#include "src/report/render.h"
#include "src/trace/reader.h"
#include "ttrace/status.h"

namespace ttrace {

// A trace: who wrote it, which ranks, legs and iterations it holds, how many
// tensors of which role, and what its ranks remarked. `all_notes`: instead of
// what a person is told, an example of each kind as it was written.
std::string DescribeTrace(const Trace& trace, bool all_notes,
                          const TerminalOptions& terminal);

// Its collectives, those that are alike in one line: phase, kind, how many of a
// rank, elements, groups, module.
std::string DescribeCollectives(const Trace& trace,
                                const TerminalOptions& terminal);

struct TensorQuery {
  // Glob on the name, or on all of the tensor's id; "": of the model itself.
  std::string pattern;
  std::string leg = kReal.name();
  int iteration = -1;  // -1: all
  int values = 6;      // first values of each piece
  int limit = 10;      // tensors
};

// The tensors that match: pieces, placement, statistics and first values. A leg
// that took a launch of its own is looked for in its folder. Fails with
// kNotFound if there is no such leg, which says what there is instead, or none
// matches, kIo or kCorrupt if one cannot be read.
Result<std::string> DescribeTensors(std::shared_ptr<const Trace> trace,
                                    const TensorQuery& query,
                                    const TerminalOptions& terminal);

// A result.json: verdict, coverage, culprits.
// Fails with kCorrupt if it is none.
Result<std::string> DescribeResult(const std::string& path,
                                   const TerminalOptions& terminal);

}  // namespace ttrace

#endif  // TTRACE_SRC_CLI_INSPECT_H_
