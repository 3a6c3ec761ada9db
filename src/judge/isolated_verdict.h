// From the isolated legs of one tensor to its verdict alone.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_JUDGE_ISOLATED_VERDICT_H_
#define TTRACE_SRC_JUDGE_ISOLATED_VERDICT_H_

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "src/experiment/side.h"
#include "src/judge/judgement.h"

namespace ttrace {

// Roles that an isolated leg says something about: what modules compute, and
// what arrives at them before it is replaced.
bool InIsolation(Role role);

// What could not be replaced, by leg and module.
class NotIsolatedIndex {
 public:
  explicit NotIsolatedIndex(const std::vector<NotIsolated>& notes);

  // Why `id` is not known to depend on the reference's values alone in `leg`;
  // empty if it is. For an edge: why it was itself not replaced.
  std::string WhyNot(const std::string& leg, const TensorId& id) const;

 private:
  const NotIsolated* Find(const std::string& leg, int iteration,
                          const std::string& fqn, Role role,
                          const std::string* arg) const;

  std::map<std::tuple<std::string, int, std::string>,
           std::vector<const NotIsolated*>>
      by_module_;
};

// Fills `out->isolated` from the legs of `out` named in `isolated_legs`, which
// are judged already. A leg in which everything was replaced has the say; one
// in which something was not decides only if there is no other. `is_exact`: its
// values are integers or booleans. Such inputs, and those of the model itself,
// are data, which no leg replaces.
void ConcludeIsolated(const std::vector<std::string>& isolated_legs,
                      const NotIsolatedIndex& not_isolated, bool is_exact,
                      TensorJudgement* out);

}  // namespace ttrace

#endif  // TTRACE_SRC_JUDGE_ISOLATED_VERDICT_H_
