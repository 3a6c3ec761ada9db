// Where the rows of a micro-batch lie in the global batch, if micro-batches are
// of several sizes: a last batch that is smaller, a rank that gets one row
// less. A rank that records its own knows nothing of the others' and places
// its rows as if all were alike.
//
// Thread safety: const after construction.

#ifndef TTRACE_SRC_ALIGN_UNEVEN_ROWS_H_
#define TTRACE_SRC_ALIGN_UNEVEN_ROWS_H_

#include <cstdint>
#include <map>

#include "src/align/fed_rows.h"
#include "src/trace/record_fields.h"
#include "ttrace/tensor_id.h"

namespace ttrace {

class UnevenRows {
 public:
  explicit UnevenRows(const FedRows& fed);

  bool empty() const { return calls_.empty(); }
  // Whether tensors of this iteration may have such rows.
  bool MayHave(const TensorId& id) const;
  // Moves the rows of a record of `call` to their place. What does not count
  // the rows of its micro-batch stays as it is.
  void Place(const FedCall& call, RecordFields* record) const;

 private:
  struct Part {
    int64_t begin = 0;
    int64_t rows = 0;
  };
  struct Call {
    std::map<int, Part> parts;  // by micro-batch
    int64_t rows = 0;           // of all
  };
  std::map<FedCall, Call> calls_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_ALIGN_UNEVEN_ROWS_H_
