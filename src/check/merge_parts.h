// The parts of a check, made apart, as the result that one process would have
// given.
//
// The traces have to be where the parts found them: what places and explains
// faults looks into their indexes, and at values of the tensors it blames.

#ifndef TTRACE_SRC_CHECK_MERGE_PARTS_H_
#define TTRACE_SRC_CHECK_MERGE_PARTS_H_

#include <string>
#include <vector>

#include "src/check/check_options.h"
#include "src/check/part_head.h"
#include "src/report/check_result.h"
#include "ttrace/status.h"

namespace ttrace {

// Measures a share of a check and leaves it at `path`. Where that fails, the
// part that is left says why, and so does the Error.
Status RunPart(const CheckOptions& options, const PartHead& head,
               const std::string& path);

struct MergeOptions {
  std::vector<std::string> parts;  // files, or folders of them
  std::string working_folder;
  int threads = 0;
};

// Fails if the parts are not all there, each once, whole, of this version, and
// of one check of the traces as they are now. The message names every part that
// is in the way, and the command that runs it again.
Result<CheckResult> MergeParts(const MergeOptions& options);

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_MERGE_PARTS_H_
