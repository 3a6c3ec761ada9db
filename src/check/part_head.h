// What a part of a check says of itself before what it measured.
//
// Thread safety: plain values.

#ifndef TTRACE_SRC_CHECK_PART_HEAD_H_
#define TTRACE_SRC_CHECK_PART_HEAD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/check/check_options.h"
#include "src/measure/share.h"
#include "ttrace/leg.h"
#include "ttrace/version.h"

namespace ttrace {

// Rises with every change of what follows these two fields, and of anything
// that Measurements hold.
inline constexpr int kPartFormat = 6;

struct PartHead {
  // These two every version can read.
  int format = kPartFormat;
  std::string version{kVersion};

  Share share;
  // Of the options, those that the result depends on. Folders as they were
  // given: the result names them so.
  std::string reference;
  std::vector<std::string> reference_legs;
  std::string candidate;
  std::vector<std::string> candidate_legs;
  std::optional<std::vector<Leg>> legs;
  std::optional<std::pair<int, int>> iterations;
  bool bitwise = false;
  double risk = 0;
  std::string working_folder;  // that relative names are relative to
  // trace_digest.h; 0: there is no reference, or the traces were not opened.
  uint64_t reference_digest = 0;
  uint64_t candidate_digest = 0;
};

template <typename A>
void VisitFields(A& field, PartHead& h) {
  field("format", h.format);
  field("version", h.version);
  field("part", h.share.part);
  field("of", h.share.of);
  field("reference", h.reference);
  field("reference_legs", h.reference_legs);
  field("candidate", h.candidate);
  field("candidate_legs", h.candidate_legs);
  field("legs", h.legs);
  field("iterations", h.iterations);
  field("bitwise", h.bitwise);
  field("risk", h.risk);
  field("working_folder", h.working_folder);
  field("reference_digest", h.reference_digest);
  field("candidate_digest", h.candidate_digest);
}

inline PartHead HeadOf(const CheckOptions& options, const Share& share,
                       const std::string& working_folder) {
  PartHead head;
  head.share = share;
  head.reference = options.reference;
  head.reference_legs = options.reference_legs;
  head.candidate = options.candidate;
  head.candidate_legs = options.candidate_legs;
  head.legs = options.legs;
  head.bitwise = options.bitwise;
  if (options.iterations) {
    head.iterations = {options.iterations->begin, options.iterations->end};
  }
  head.risk = options.risk;
  head.working_folder = working_folder;
  return head;
}

inline CheckOptions OptionsOf(const PartHead& head) {
  CheckOptions options;
  options.reference = head.reference;
  options.reference_legs = head.reference_legs;
  options.candidate = head.candidate;
  options.candidate_legs = head.candidate_legs;
  options.legs = head.legs;
  options.bitwise = head.bitwise;
  if (head.iterations) {
    options.iterations =
        IterationRange{head.iterations->first, head.iterations->second};
  }
  options.risk = head.risk;
  return options;
}

}  // namespace ttrace

#endif  // TTRACE_SRC_CHECK_PART_HEAD_H_
