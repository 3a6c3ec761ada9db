// What each forward of a model was fed, row by row, as capture noted it.
//
// A row of a batch is known by its contents. Which rows of the global batch
// those of a rank are, it cannot know by itself: how many the others have, and
// in which order a sampler dealt them out, is seen when all ranks' notes are
// read. Two kinds of note say it of a rank, a micro-batch and a call of the
// model (or an item of the data iterator):
//
//   fed_call  how many rows it has, and how often each module had been called
//             before it in this micro-batch; of a loop that calls several
//             models, which of them it is of
//   fed_rows  the digests of the rows of one tensor along one dimension
//             (numeric/row_digests.h)
//
// docs/trace_format.md has their fields.
//
// Thread safety: const after Read.

#ifndef TTRACE_SRC_ALIGN_FED_ROWS_H_
#define TTRACE_SRC_ALIGN_FED_ROWS_H_

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/numeric/row_digests.h"
#include "src/trace/reader.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

// The dimension of a list of tensors: each of them is a row.
inline constexpr int kListDim = -1;

// (name of the argument, dimension) of what is cut into rows.
using FedName = std::pair<std::string, int>;

// 16 hexadecimal digits each. Of a text that is none, nothing.
std::string DigestText(const std::vector<uint64_t>& digests);
std::vector<uint64_t> ParseDigests(std::string_view text);

struct FedTensor {
  int64_t rows = 0;
  RowDigests digests;  // empty if there were too many rows
  int64_t width = 0;   // of the next dimension, 0: none
  // It counts within the batch of its rank, as offsets and the numbers of
  // graphs do: rows of other batches have other values.
  bool is_relative = false;
};

// One micro-batch's part of a call.
struct FedPart {
  int rank = 0;      // the first of those that were fed it
  int64_t rows = 0;  // as capture took them, to say where records lie
  std::map<FedName, FedTensor> tensors;
  std::map<std::string, int> calls_before;  // of modules, in this micro-batch
  std::string root;  // of what was called, where a loop calls several models
};

struct FedCall {
  bool is_data = false;  // an item of the data iterator, not the model's input
  int iteration = 0;
  int call = 0;
  auto operator<=>(const FedCall&) const = default;
};

class FedRows {
 public:
  // Parts by micro-batch, in the order of the global batch.
  using Parts = std::map<int, FedPart>;

  static FedRows Read(const Trace& trace);

  bool empty() const { return calls_.empty(); }
  const std::map<FedCall, Parts>& calls() const { return calls_; }
  const Parts* Find(const FedCall& call) const;
  // Which call of the model (or item) a tensor of this micro-batch is of.
  FedCall CallOf(const TensorId& id, int micro_batch) const;

 private:
  std::map<FedCall, Parts> calls_;
  std::map<int, int>
      most_calls_;  // of the model in a micro-batch: iteration ->
};

}  // namespace ttrace

#endif  // TTRACE_SRC_ALIGN_FED_ROWS_H_
