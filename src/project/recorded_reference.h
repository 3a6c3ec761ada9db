// The reference of an experiment as it lies in the project's results: its
// trace, and a file beside it that says what it depended on (reference_key.h)
// and what it held.
//
// Thread safety: reads and writes the file system only; one run of an
// experiment at a time.

#ifndef TTRACE_SRC_PROJECT_RECORDED_REFERENCE_H_
#define TTRACE_SRC_PROJECT_RECORDED_REFERENCE_H_

#include <nlohmann/json.hpp>
#include <string>

#include "ttrace/status.h"

namespace ttrace {

struct RecordedReference {
  std::string trace;      // a folder
  std::string note_file;  // what it depended on

  // The id of the run that is noted; "": none is.
  std::string run_id() const;

  // Why it is none to use while it has to depend on `key`: "" if it is.
  std::string WhyNot(const nlohmann::ordered_json& key) const;
  // When it was recorded, as noted.
  std::string RecordedAt() const;

  // Puts `recorded`, a trace that is whole, in the place of the one that is
  // there, which is removed, and notes what it depends on. Until then that one
  // is left as it is. Fails with kIo, and with kInvalidArgument if what is
  // there is no trace.
  Status Replace(const std::string& recorded,
                 const nlohmann::ordered_json& key) const;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_PROJECT_RECORDED_REFERENCE_H_
