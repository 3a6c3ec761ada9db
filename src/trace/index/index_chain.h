// IndexChain: the checksum that ties every line of an index to all lines before
// it and to meta.json, so that a line that was changed, removed, repeated,
// moved or taken from another rank is noticed.
//
// Thread safety: one thread.

#ifndef TTRACE_SRC_TRACE_INDEX_INDEX_CHAIN_H_
#define TTRACE_SRC_TRACE_INDEX_INDEX_CHAIN_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "ttrace/status.h"

namespace ttrace {

class IndexChain {
 public:
  // Bytes that Add makes a line longer by.
  static constexpr size_t kAddedBytes = 27;

  // `meta_json`: all bytes of the rank's meta.json.
  explicit IndexChain(std::string_view meta_json);

  // Adds the key "chain" to a whole line, '\n' included.
  // REQUIRES: line ends with "}\n"
  void Add(std::string& line);

  // Checks the next line, without its '\n'. Fails with kCorrupt; the chain is
  // then of no further use.
  Status Check(std::string_view line);

  // Whether a line, without its '\n', ends with a chain's key.
  static bool EndsWithKey(std::string_view line);

 private:
  uint64_t last_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_TRACE_INDEX_INDEX_CHAIN_H_
