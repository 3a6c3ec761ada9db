// From the isolated legs of one tensor to its verdict alone.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_JUDGE_ISOLATED_VERDICT_H_
#define TTRACE_SRC_JUDGE_ISOLATED_VERDICT_H_

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "src/experiment/side.h"
#include "src/judge/judgement.h"
#include "ttrace/leg.h"

namespace ttrace {

// What could not be replaced, by leg and module.
class NotIsolatedIndex {
 public:
  explicit NotIsolatedIndex(const std::vector<NotIsolated>& notes);

  // Why `id` is not known to depend on the reference's values alone in `leg`;
  // none if it is. For an edge: why it was itself not replaced.
  Reason WhyNot(const Leg& leg, const TensorId& id) const;

 private:
  const NotIsolated* Find(const Leg& leg, int iteration, const std::string& fqn,
                          Role role, const std::string* arg) const;

  std::map<std::tuple<Leg, int, std::string>, std::vector<const NotIsolated*>>
      by_module_;
};

// The verdict of the isolated legs among `legs`, as told by `is_isolated`,
// parallel to them. A leg in which everything was replaced has the say; one in
// which something was not decides only if there is no other. `is_exact`: its
// values are integers or booleans. Such inputs, and those of the model itself,
// are data, which no leg replaces. `copies_differ`: in an isolated leg as well,
// on `copy_ranks`. Nothing if no leg is isolated.
std::optional<TensorJudgement::Isolated> ConcludeIsolated(
    const TensorId& id, const std::vector<LegJudgement>& legs,
    const std::vector<bool>& is_isolated, const NotIsolatedIndex& not_isolated,
    bool is_exact, bool copies_differ, const std::vector<int>& copy_ranks);

// Whether the run itself says that an isolated leg's error is none of the code
// under test: end to end, where the module computed from values that are the
// reference's but for round-off, the same tensor is within a bound that such an
// error would be beyond. Then something else was put in place than was meant (a
// gradient in another unit beside the loop's own, rows that could not be
// placed), or a part of it was left.
bool ContradictedByRun(const TensorJudgement& judgement);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_ISOLATED_VERDICT_H_
