// Whose notes are read: those of a trace or of a list.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_TRACE_NOTE_LIST_H_
#define TTRACE_SRC_TRACE_NOTE_LIST_H_

#include <initializer_list>
#include <span>
#include <vector>

#include "src/trace/reader.h"

namespace ttrace {

// The notes of a trace, rank by rank, or some by themselves; to be passed on,
// while they stay.
class NoteList {
 public:
  NoteList(const Trace& trace) {  // NOLINT(google-explicit-constructor)
    for (const RankTrace& rank : trace.ranks()) parts_.push_back(rank.notes);
  }
  NoteList(const std::vector<Note>& notes)  // NOLINT
      : parts_{std::span(notes)} {}
  NoteList(std::initializer_list<Note> notes)
      : parts_{std::span(notes.begin(), notes.size())} {}

  const std::vector<std::span<const Note>>& parts() const { return parts_; }

 private:
  std::vector<std::span<const Note>> parts_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_NOTE_LIST_H_
