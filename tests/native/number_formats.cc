// What the core makes of numbers, as a filter: elements on standard input,
// results on standard output, so that a test can hold them against numpy and
// ml_dtypes (tests/number_formats.py).
//
//   number_formats widen DTYPE       elements -> doubles
//   number_formats narrow DTYPE      doubles -> elements
//   number_formats round DTYPE       doubles -> doubles
//   number_formats compare REF CAND  elements of one, then as many of the
//                                    other -> of each pair, compared by itself,
//                                    seven doubles
//   number_formats sets              the instruction sets of this machine
//
// TTRACE_INSTRUCTION_SET limits what is used.

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "src/compare/compare_kernel.h"
#include "src/numeric/instruction_set.h"
#include "src/numeric/narrow.h"
#include "src/numeric/round_to.h"
#include "src/numeric/widen.h"

namespace ttrace {
namespace {

std::vector<std::byte> ReadAll() {
  std::vector<std::byte> out;
  std::byte part[65536];
  for (;;) {
    const size_t n = std::fread(part, 1, sizeof(part), stdin);
    if (n == 0) return out;
    out.insert(out.end(), part, part + n);
  }
}

template <class T>
void Write(const std::vector<T>& values) {
  std::fwrite(values.data(), sizeof(T), values.size(), stdout);
}

std::vector<double> AsDoubles(const std::vector<std::byte>& bytes) {
  std::vector<double> out(bytes.size() / sizeof(double));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(double));
  return out;
}

std::vector<double> ComparePairs(DType ref, DType cand,
                                 const std::vector<std::byte>& bytes) {
  const auto ref_size = static_cast<size_t>(Info(ref).itemsize);
  const auto cand_size = static_cast<size_t>(Info(cand).itemsize);
  const size_t count = bytes.size() / (ref_size + cand_size);
  const std::byte* cands = bytes.data() + count * ref_size;
  std::vector<double> out;
  for (size_t i = 0; i < count; ++i) {
    ErrorSums sums;
    CompareRows({bytes.data() + i * ref_size, ref, 0, 1},
                {cands + i * cand_size, cand, 0, 1}, {1, 1, 0, 0, 0}, &sums);
    const ErrorStats s = sums.Stats();
    out.insert(out.end(), {s.max_abs_err, s.max_abs_ref, s.sum_sq_err,
                           static_cast<double>(s.mismatched),
                           static_cast<double>(s.nonfinite_ref),
                           static_cast<double>(s.nonfinite_cand),
                           static_cast<double>(s.nonfinite_differ)});
  }
  return out;
}

int Run(const std::vector<std::string_view>& arguments) {
  if (arguments == std::vector<std::string_view>{"sets"}) {
    for (const std::string& set : InstructionSets()) std::puts(set.c_str());
    return 0;
  }
  if (!LimitInstructionSetByEnvironment().ok()) return 2;
  std::vector<DType> dtypes;
  for (size_t i = 1; i < arguments.size(); ++i) {
    const auto dtype = ParseDType(arguments[i]);
    if (!dtype.has_value()) return 2;
    dtypes.push_back(*dtype);
  }
  if (dtypes.empty()) return 2;
  const std::string_view what = arguments.front();
  const std::vector<std::byte> in = ReadAll();
  const auto size = static_cast<size_t>(Info(dtypes.front()).itemsize);
  if (what == "widen") {
    std::vector<double> out(in.size() / size);
    Widen(dtypes.front(), in.data(), out.size(), out.data());
    Write(out);
  } else if (what == "narrow") {
    const std::vector<double> values = AsDoubles(in);
    std::vector<std::byte> out(values.size() * size);
    for (size_t i = 0; i < values.size(); ++i) {
      Narrow(dtypes.front(), values[i], out.data() + i * size);
    }
    Write(out);
  } else if (what == "round") {
    std::vector<double> values = AsDoubles(in);
    for (double& x : values) x = RoundTo(x, dtypes.front());
    Write(values);
  } else if (what == "compare" && dtypes.size() == 2) {
    Write(ComparePairs(dtypes[0], dtypes[1], in));
  } else {
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace ttrace

int main(int argc, char** argv) {
  return ttrace::Run(std::vector<std::string_view>(argv + 1, argv + argc));
}
