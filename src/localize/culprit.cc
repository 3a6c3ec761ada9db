#include "src/localize/culprit.h"

namespace ttrace {

std::string_view ToString(Direction direction) {
  switch (direction) {
    case Direction::kForward:
      return "forward";
    case Direction::kBackward:
      return "backward";
    case Direction::kUpdate:
      return "update";
  }
  return "unknown";
}

std::string_view ToString(Stage stage) {
  switch (stage) {
    case Stage::kInput:
      return "input";
    case Stage::kCompute:
      return "compute";
    case Stage::kCommunication:
      return "communication";
    case Stage::kOptimizer:
      return "optimizer";
  }
  return "unknown";
}

}  // namespace ttrace
