// ElementScales: the scale of errors of single elements (c of
// ErrorStats::max_elem) of tensors that a rank has written pieces of, where it
// takes more than one piece to know it.
//
// What a rank holds in several pieces it adds up itself. Of what others hold
// the rest of, ranks tell one rank their sums of squares (Message), that one
// adds them up (AddUpScales), and all read what it found (Learn). Sums are
// exact, so that the scale is that of a check that reads all values, bit by
// bit, in whatever order the ranks come. Nothing is known of tensors whose
// pieces do not make a whole without overlap.
//
// Messages are exchanged by ranks of one run, whose program is the same
// (packed.h). What does not add up or is damaged is refused, and then nothing
// is known.
//
// Thread safety: a writer's thread may Add while another one tells and learns.

#ifndef TTRACE_SRC_IN_PLACE_ELEMENT_SCALES_H_
#define TTRACE_SRC_IN_PLACE_ELEMENT_SCALES_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/compare/error_sums.h"
#include "src/trace/record_fields.h"
#include "ttrace/layout.h"
#include "ttrace/leg.h"
#include "ttrace/status.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

class ElementScales {
 public:
  // Takes note of a piece of which `squares` are ExactSquares. `alone`: it
  // means nothing by itself should the rank hold another piece of the tensor.
  // What was said of other iterations is forgotten.
  void Add(const RecordFields& piece, const ErrorSums& squares, bool alone);

  // 0 where a tensor has no scale: it is all zero, or not finite.
  std::optional<double> Find(const Leg& leg, const TensorId& id);

  // What others have to know of all that was added since the last message.
  std::string Message();

  // Takes what AddUpScales made of the messages of all ranks. Fails with
  // kCorrupt if these are other bytes.
  Status Learn(std::string_view answer);

 private:
  struct Held {
    std::vector<std::pair<Layout, int>> pieces;  // with micro-batches
    ExactSum squares;
    bool finite = true;
    bool usable = true;
    bool alone = false;  // must be
    bool told = false;
  };
  static bool MeansSomething(const Held& held);
  static bool IsWhole(const Held& held);

  std::mutex mutex_;
  int iteration_ = -1;
  std::map<std::pair<Leg, TensorId>, Held> held_;
  std::unordered_map<uint64_t, double> learned_;
};

// The scales of all tensors that the messages of all ranks make a whole of.
// Copies count once, those of the lowest rank. `messages` are by rank.
// Fails with kCorrupt if one is none of Message().
Result<std::string> AddUpScales(const std::vector<std::string>& messages);

}  // namespace ttrace

#endif  // TTRACE_SRC_IN_PLACE_ELEMENT_SCALES_H_
