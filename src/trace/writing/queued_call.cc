#include "src/trace/writing/queued_call.h"

#include <utility>

namespace ttrace {

bool HasStretch(const Call& call) {
  if (const auto* append = std::get_if<AppendCall>(&call)) {
    return append->staged;
  }
  if (std::holds_alternative<SummaryCall>(call)) return true;
  const auto* lost = std::get_if<LostCall>(&call);
  return lost != nullptr && lost->staged;
}

bool IsOnItsWay(const Call& call) {
  const auto* append = std::get_if<AppendCall>(&call);
  return append != nullptr && append->from != nullptr;
}

bool EndsHolding(const Call& call) {
  return std::holds_alternative<ReleaseCall>(call) ||
         std::holds_alternative<DropCall>(call);
}

}  // namespace ttrace
