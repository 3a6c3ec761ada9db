// From single blames to culprits: what two ways of finding places share.
//
// A blame says where one tensor that is out of bounds puts the fault. Many
// tensors have one cause: the same code in another layer or iteration, or the
// same step for another parameter. They become one culprit, named by the
// earliest.
//
// Thread safety: plain values; CulpritList is for one thread.

#ifndef TTRACE_SRC_LOCALIZE_BLAME_H_
#define TTRACE_SRC_LOCALIZE_BLAME_H_

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/judge/judgement.h"
#include "src/localize/culprit.h"

namespace ttrace {

struct Blame {
  std::string fqn;
  Direction direction;
  Stage stage;
  std::string where;  // how the place was found, in words
  // Tells places inside `fqn` apart; empty if the way to it cannot.
  std::string point = "";
};

// True for roles that belong to a parameter and not to a module.
bool IsParameterRole(Role role);

// A module's name for people: the root, whose name is empty, is "the model".
std::string NameOrModel(const std::string& fqn);

// Adds to the culprit's ranks, which stay sorted and each there once.
void AddRanks(const std::vector<int>& ranks, Culprit* culprit);

// Adds to the tensors that show the culprit, each once.
void AddShownBy(const std::vector<TensorId>& ids, Culprit* culprit);

// Two blames of equal cause are one culprit.
struct Cause {
  Role role;
  Direction direction;
  Stage stage;
  std::string place;

  auto operator<=>(const Cause&) const = default;
};

// Without a point, all parameters of a role are one place: a fault in a
// reduction or an update hits many at once.
Cause CauseOf(Role role, const Blame& blame);

// How many tensors of one iteration could show what one of them does: those of
// its role, and after a step the parameters, each of which has several.
class Comparable {
 public:
  void Add(const TensorId& id);
  int64_t CountFor(Role role) const;

 private:
  std::map<Role, int64_t> of_role_;
  std::set<std::string> stepped_;
};

class CulpritList {
 public:
  explicit CulpritList(std::string found_by) : found_by_(std::move(found_by)) {}

  // `of`: Comparable::CountFor its role, in the same iteration. `headroom` and
  // `ranks`: of the verdict that fails.
  // Returns the index of the culprit that `t` belongs to.
  // REQUIRES: called in execution order.
  size_t Add(const TensorJudgement& t, const Blame& blame, double headroom,
             const std::vector<int>& ranks, int64_t of);

  std::vector<Culprit> Take() { return std::move(culprits_); }

 private:
  std::string found_by_;
  std::vector<Culprit> culprits_;
  std::map<Cause, size_t> known_;
  std::vector<std::set<std::string>> stepped_;  // of each culprit
};

}  // namespace ttrace

#endif  // TTRACE_SRC_LOCALIZE_BLAME_H_
