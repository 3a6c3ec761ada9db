// Was a product made of operands that had been rounded to few bits? Both are
// known before any rounding, so the rounding is done again: on a grid of so
// many significant bits, with any scale. A scale of 2 is none, so [1, 2) is
// searched. At another scale other values go up and down, so a scale that
// makes the very deviations that are there is met by chance by none.
//
// Thread safety: pure functions.

#ifndef TTRACE_SRC_DIAGNOSE_OPERAND_ROUNDING_H_
#define TTRACE_SRC_DIAGNOSE_OPERAND_ROUNDING_H_

#include <cstddef>
#include <vector>

namespace ttrace {

// left (rows x inner) times right (columns x inner) transposed.
struct Operands {
  size_t rows = 0;
  size_t columns = 0;
  size_t inner = 0;
  std::vector<double> left;
  std::vector<double> right;
};

struct OperandRounding {
  int bits = 0;  // significant, the implicit one included; 0: none was found
  double left_scale = 0;        // in [1, 2); 0: this operand was not rounded
  double right_scale = 0;       // likewise
  std::vector<double> product;  // rows x columns, of what the operands became
};

// `value` with so many significant bits, on a grid that is stretched by
// `scale`. Exact zero stays.
double RoundedTo(double value, int bits, double scale);

// The rounding that explains how `made` (rows x columns) deviates from the
// product of the operands, but for a constant in each column (a bias). Without
// one, `product` is that of the operands as they are.
OperandRounding FitRounding(const Operands& operands,
                            const std::vector<double>& made);

}  // namespace ttrace

#endif  // TTRACE_SRC_DIAGNOSE_OPERAND_ROUNDING_H_
