// Attribute: something that the code under test sets on a parameter or module
// and later acts by, where it is not what class, configuration and topology
// lead to expect. From the notes "attribute" of a trace.
//
// Evidence for a diagnosis; alignment never looks at it.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_ALIGN_ATTRIBUTE_H_
#define TTRACE_SRC_ALIGN_ATTRIBUTE_H_

#include <set>
#include <string>
#include <vector>

#include "src/trace/note_list.h"

namespace ttrace {

struct Attribute {
  std::string fqn;  // of a gradient bucket: its first parameter
  std::string name;
  // As a person would write them: "True", "0.5".
  std::string value;
  std::string expected;
  bool of_bucket = false;  // of all gradients that are reduced together
  std::set<int> ranks;     // that have it
};

// Sorted by (name, fqn), one for each (fqn, name, value, expected). Never
// fails: notes that say nothing are left out.
std::vector<Attribute> ReadAttributes(const NoteList& notes);

}  // namespace ttrace

#endif  // TTRACE_SRC_ALIGN_ATTRIBUTE_H_
