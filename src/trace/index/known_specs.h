// KnownSpecs: the specs that an index has named so far.
//
// Of a rank's thousands of specs most differ from others in the module's name
// alone. What they have in common was decoded and checked once, and is there
// once.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_INDEX_KNOWN_SPECS_H_
#define TTRACE_SRC_TRACE_INDEX_KNOWN_SPECS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/trace/index/plain_line.h"
#include "src/trace/index/record_check.h"
#include "src/trace/record_fields.h"

namespace ttrace {

// All of a spec but the module's name, and what follows from it in its rank.
struct SpecKind {
  RecordSpec spec;  // `fqn` is that of one of them
  SpecFacts facts;
};

class KnownSpecs {
 public:
  size_t size() const { return specs_.size(); }
  const std::string& fqn(size_t number) const { return specs_[number].fqn; }
  uint32_t kind_number(size_t number) const { return specs_[number].kind; }
  const SpecKind& kind(size_t number) const {
    return kinds_[specs_[number].kind];
  }
  // As it was written.
  RecordSpec spec(size_t number) const;

  // The next one.
  // REQUIRES: `facts` are those of `spec`.
  void Add(RecordSpec spec, SpecFacts facts);
  // The next one, if it is like an earlier one in all but the module's name.
  bool AddAlike(const PlainSpecLine& line);
  // That the last one was added for this line.
  void NameLast(const PlainSpecLine& line);

 private:
  struct Known {
    std::string fqn;
    uint32_t kind = 0;
  };
  struct HashOfText {
    using is_transparent = void;
    size_t operator()(std::string_view text) const;
  };
  struct EqualTexts {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const {
      return a == b;
    }
  };

  std::vector<Known> specs_;  // by number
  std::deque<SpecKind> kinds_;
  // By what their lines say of them (PlainSpecLine::rest).
  std::unordered_map<std::string, uint32_t, HashOfText, EqualTexts> by_text_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_INDEX_KNOWN_SPECS_H_
