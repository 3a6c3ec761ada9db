#include "src/diagnose/reductions/module_sums.h"

#include <algorithm>

namespace ttrace {
namespace {

// Whether `fqn` is `module` or lies in it.
bool IsIn(const std::string& fqn, const std::string& module) {
  return module.empty() || fqn == module || fqn.starts_with(module + ".");
}

void Count(const SeenCollectives& seen, const Collective& c,
           const std::string& module, const std::string& dim,
           ModuleSums* sums) {
  const bool here = IsIn(c.fqn, module);
  const bool along = seen.Varies(c.members, dim);
  // A reduce_scatter is given the terms of all, and leaves one's own part.
  const int64_t share =
      c.kind == "reduce_scatter"
          ? c.elements / static_cast<int64_t>(c.members.size())
          : c.elements;
  const bool fits = sums->sizes[c.rank].contains(share);
  // Ranks that hold no term of this value: they have other data.
  const bool foreign = std::any_of(
      c.members.begin(), c.members.end(),
      [&](int member) { return !seen.OnOneLine(c.rank, member, sums->dims); });
  if (!c.Sums()) {
    // A ring of sends or an exchange may carry the sum.
    sums->unclear |= here && along && c.kind != "all_gather";
  } else if (!here) {
    // So may a sum that a container makes.
    sums->unclear |= fits && along && IsIn(module, c.fqn);
  } else if (along && !(fits && foreign)) {
    ++sums->made[c.rank];
    sums->kind = c.kind;
    sums->all_fit &= fits;
  } else if (fits && c.members.size() > 1 && sums->over.empty()) {
    sums->kind = c.kind;
    sums->over.insert(c.members.begin(), c.members.end());
    for (const auto& [holder, unused] : sums->needed) {
      if (seen.OnOneLine(c.rank, holder, {dim})) sums->terms_on.insert(holder);
    }
  }
}

}  // namespace

ModuleSums FindModuleSums(const SeenCollectives& seen, const TensorId& of,
                          const std::string& phase, const std::string& dim) {
  ModuleSums out;
  for (const auto& [id, pieces] : *seen.evidence().tensors) {
    if (id.fqn != of.fqn || id.role != of.role || id.pass != of.pass ||
        id.iteration != of.iteration) {
      continue;
    }
    for (const Record& piece : pieces.pieces) {
      const auto& over = piece.reduced_over();
      if (std::find(over.begin(), over.end(), dim) == over.end()) continue;
      ++out.needed[piece.rank()];
      out.dims.insert(over.begin(), over.end());
      out.sizes[piece.rank()].insert(Elements(piece));
    }
  }
  for (const auto& [rank, count] : out.needed) {
    for (const Collective* c : seen.Of(rank, of.iteration)) {
      if (c->phase == phase) Count(seen, *c, of.fqn, dim, &out);
    }
  }
  return out;
}

}  // namespace ttrace
