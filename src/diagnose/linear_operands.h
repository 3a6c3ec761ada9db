// What goes into a module and what arrives at it, where it may be linear: terms
// and products of these are made again. Whether it is linear is for the values
// to say.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_DIAGNOSE_LINEAR_OPERANDS_H_
#define TTRACE_SRC_DIAGNOSE_LINEAR_OPERANDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "src/align/catalog.h"
#include "src/diagnose/evidence.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

struct Operand {
  TensorId id;
  const TensorPieces* pieces = nullptr;
};

bool IsFloating(const TensorPieces& pieces);

// The reference's floating-point tensors [..., features] of a module's role in
// an iteration, of all its calls and passes, in order.
std::vector<Operand> OperandsOf(const Evidence& evidence,
                                const std::string& module, Role role,
                                int iteration, int64_t features);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_LINEAR_OPERANDS_H_
