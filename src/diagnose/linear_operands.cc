#include "src/diagnose/linear_operands.h"

#include "ttrace/dtype.h"
#include "ttrace/layout.h"

namespace ttrace {

bool IsFloating(const TensorPieces& pieces) {
  return Info(pieces.pieces.front().dtype()).floating;
}

std::vector<Operand> OperandsOf(const Evidence& evidence,
                                const std::string& module, Role role,
                                int iteration, int64_t features) {
  std::vector<Operand> out;
  evidence.visit_reference([&](const TensorId& id, const TensorPieces& pieces) {
    if (id.fqn != module || id.role != role || id.iteration != iteration) {
      return;
    }
    const Shape shape = pieces.global_shape();
    if (!shape.empty() && shape.back() == features && IsFloating(pieces)) {
      out.push_back({id, &pieces});
    }
  });
  return out;
}

}  // namespace ttrace
