// Output folders: made new, or emptied of what TTrace itself wrote there, never
// of anything else.

#ifndef TTRACE_SRC_RUN_OUTPUT_FOLDER_H_
#define TTRACE_SRC_RUN_OUTPUT_FOLDER_H_

#include <string>
#include <vector>

#include "src/run/folder_lock.h"
#include "ttrace/status.h"

namespace ttrace {

enum class FolderKind {
  kTrace,   // manifest.json, rank folders, legs/
  kReport,  // reference/, candidate/, *.log, result.json, report.txt,
            // index.html
};

// Makes `folder` exist and be empty. A folder with content is refused, or, with
// `force`, emptied if all of its content is a trace's or a report's; files of a
// report called as in `rewritten` are taken for such, because the caller writes
// them anew. Symbolic links are never followed or removed.
//
// Fails with kInvalidArgument if there is content and not `force`, if there is
// anything foreign, which it names, or if another run writes there; nothing is
// removed then. The folder is this process's for as long as the lock is kept.
Result<FolderLock> PrepareFolder(
    const std::string& folder, FolderKind kind, bool force,
    const std::vector<std::string>& rewritten = {});

// Whether PrepareFolder would have it so, of a folder that is there or not:
// nothing is made or removed. Fails as it does.
Status CheckReplaceable(const std::string& folder, FolderKind kind, bool force,
                        const std::vector<std::string>& rewritten = {});

// Removes a trace folder made by this program. Fails as PrepareFolder does.
Status RemoveTrace(const std::string& folder);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_OUTPUT_FOLDER_H_
