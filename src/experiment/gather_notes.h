// From the notes that ranks left in a trace to RunNotes: what many ranks, legs
// or iterations say alike is said once, and counts are of things, not of ranks.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_EXPERIMENT_GATHER_NOTES_H_
#define TTRACE_SRC_EXPERIMENT_GATHER_NOTES_H_

#include <memory>
#include <string>
#include <vector>

#include "src/experiment/run_note.h"

namespace ttrace {

struct ParsedNote;

class NoteGatherer {
 public:
  NoteGatherer();
  ~NoteGatherer();

  // Whether there is anything to say of notes of this kind.
  static bool Reads(const std::string& kind);
  void Add(const ParsedNote& note);
  // `folder`: of the trace that they are of.
  std::vector<RunNote> Finish(const std::string& folder) &&;

 private:
  class Groups;
  std::unique_ptr<Groups> groups_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_EXPERIMENT_GATHER_NOTES_H_
