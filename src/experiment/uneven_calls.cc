#include "src/experiment/uneven_calls.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace ttrace {
namespace {

// By (run, rank, micro-batch) the highest number of a call.
using LastCalls = std::map<std::tuple<const Side*, int, int>, int>;

void Add(const Side& side, std::map<ModuleOfIteration, LastCalls>* out) {
  for (const auto& [id, pieces] : side.real()) {
    if (id.role != Role::kOutput || id.pass != Pass::kForward) continue;
    LastCalls& calls = (*out)[{id.fqn, id.iteration}];
    for (const Record& piece : pieces.pieces) {
      int& last = calls[{&side, piece.rank(), piece.micro_batch()}];
      last = std::max(last, id.call);
    }
  }
}

}  // namespace

std::set<ModuleOfIteration> UnevenCalls(const Side& reference,
                                        const Side& candidate) {
  std::map<ModuleOfIteration, LastCalls> modules;
  Add(reference, &modules);
  Add(candidate, &modules);
  std::set<ModuleOfIteration> out;
  for (const auto& [module, calls] : modules) {
    const int first = calls.begin()->second;
    if (std::any_of(calls.begin(), calls.end(),
                    [&](const auto& entry) { return entry.second != first; })) {
      out.insert(module);
    }
  }
  return out;
}

}  // namespace ttrace
