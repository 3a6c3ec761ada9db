// Which tokens the rows are that a router sent to an expert.
//
// Of an expert a rank holds, for each source rank of its group in their order,
// the tokens that the source's router sent to it, by their place in the source.
// So the routing maps of all sources say which token each row is *meant* to be,
// without a look at the rows or at the code that moved them: a dispatcher that
// sends a token to another place is not used to find the place.
//
// Micro-batches are numbered over all data-parallel ranks. Ranks of a group run
// theirs together, so that the k-th micro-batch of one is with the k-th of the
// others. A backward pass is of the tokens of its forward, and a recomputed
// forward routes by the map of its own pass if that is recorded.
//
// Thread safety: one thread at a time.

#ifndef TTRACE_SRC_ALIGN_ROUTED_ROWS_H_
#define TTRACE_SRC_ALIGN_ROUTED_ROWS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "src/trace/reader.h"
#include "src/trace/record_list.h"
#include "ttrace/layout.h"
#include "ttrace/leg.h"

namespace ttrace {

// Why routed rows have no place among the tokens.
struct RoutingTrouble {
  // The maps are there and say another number of rows: something was lost,
  // added or sent elsewhere. False: a map is not there or says nothing.
  bool miscounted = false;
  int rank = 0;        // that holds the rows, or lacks the map
  std::string router;  // fqn
  int expert = 0;
  int64_t expected = 0;  // rows, if miscounted
  int64_t actual = 0;
  std::string detail;  // else: what is wrong with the map

  bool operator==(const RoutingTrouble&) const = default;
};
std::string ToString(const RoutingTrouble& trouble);

class RoutingMaps {
 public:
  // Looks for routed rows in `trace`, which must outlive this, and for their
  // maps. Reads no tensor.
  explicit RoutingMaps(const Trace& trace);

  // There are no routed rows.
  bool empty() const { return wanted_.empty(); }

  // The tokens of a record's rows, in their order.
  // REQUIRES: record.routed
  std::variant<DimLayout, RoutingTrouble> TokensOf(const Record& record);

  // All tokens that ranks of the trace sent to the expert of `record` in that
  // pass, ascending: what the pieces of the whole tensor hold together.
  // REQUIRES: record.routed
  std::variant<DimLayout, RoutingTrouble> AllTokens(const Record& record);

 private:
  // The forwards of one router: (leg, iteration, fqn, output, call, pass).
  using Forward = std::tuple<Leg, int, std::string, std::string, int, Pass>;
  using MapsOfRank = RecordList;  // by micro-batch
  // Tokens for each expert, by their place in the map; or what is wrong.
  using Choices = std::variant<std::vector<std::vector<int64_t>>, std::string>;

  const MapsOfRank* Find(const Record& routed, int rank) const;
  const std::vector<int>* Sources(const Record& routed) const;
  const Choices& Read(const Record& map);
  // The tokens that one map sends to the expert of `routed`.
  std::variant<const std::vector<int64_t>*, RoutingTrouble> Chosen(
      const Record& routed, const Record& map);

  const Trace& trace_;
  std::map<std::pair<std::string, std::string>, int> wanted_;  // router, output
  std::map<Forward, std::map<int, MapsOfRank>> maps_;          // rank ->
  std::map<std::pair<int, std::string>, std::vector<int>> groups_;
  // Of the last forward asked for: all its experts are asked for together.
  Forward current_;
  std::map<Record, Choices> read_;
};

}  // namespace ttrace

#endif  // TTRACE_SRC_ALIGN_ROUTED_ROWS_H_
