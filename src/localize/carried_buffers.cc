#include "src/localize/carried_buffers.h"

#include <fmt/format.h>

#include "src/experiment/module_names.h"

namespace ttrace {

CarriedBuffers::CarriedBuffers(
    const std::vector<const TensorJudgement*>& tensors) {
  for (const TensorJudgement* t : tensors) {
    if (!t->carried_out()) continue;
    const TensorJudgement*& worst = by_module_[ParentName(t->id.fqn)];
    if (worst == nullptr || t->headroom > worst->headroom) worst = t;
  }
}

const TensorJudgement* CarriedBuffers::OwnedBy(const Blame& blame) const {
  if (blame.direction != Direction::kForward ||
      blame.stage != Stage::kCompute) {
    return nullptr;
  }
  const auto found = by_module_.find(blame.fqn);
  return found == by_module_.end() ? nullptr : found->second;
}

Blame OfBuffer(const TensorJudgement& buffer, const Blame& blame) {
  return {buffer.id.fqn, Direction::kForward, Stage::kCompute,
          fmt::format("when the iteration begins it is not what the "
                      "reference's forwards have made of it, and {} computes "
                      "with it: {}",
                      NameOrModel(blame.fqn), blame.where)};
}

}  // namespace ttrace
