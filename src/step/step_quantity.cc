#include "src/step/step_quantity.h"

namespace ttrace {

StepField BeforeOf(StepQuantity quantity) {
  switch (quantity) {
    case StepQuantity::kFirst:
      return StepField::kFirst;
    case StepQuantity::kSecond:
      return StepField::kSecond;
    case StepQuantity::kLargest:
      return StepField::kLargest;
    case StepQuantity::kMomentum:
      return StepField::kMomentum;
    case StepQuantity::kCopy:
      return StepField::kCopy;
    default:
      return StepField::kParameter;
  }
}

StepField ResultOf(StepQuantity quantity) {
  switch (quantity) {
    case StepQuantity::kFirst:
      return StepField::kFirstAfter;
    case StepQuantity::kSecond:
      return StepField::kSecondAfter;
    case StepQuantity::kLargest:
      return StepField::kLargestAfter;
    case StepQuantity::kMomentum:
      return StepField::kMomentumAfter;
    case StepQuantity::kCopy:
      return StepField::kCopyAfter;
    default:
      return StepField::kParameterAfter;
  }
}

}  // namespace ttrace
