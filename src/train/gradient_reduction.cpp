#include "compact/train/gradient_reduction.h"

namespace compact {

void GradientReduction::reduce(Context& context, std::span<const Parameter> parameters) {
  // Backward completes the parts of a layer from the last to the first.
  for (std::size_t i = parameters.size(); i-- > 0;) add(context, parameters[i].gradient, Way::Reduce);
}

void GradientReduction::gather(Context& context, const Parameter& parameter) {
  if (sharded_) add(context, parameter.weight, Way::Gather);
}

void GradientReduction::add(Context& context, const Tensor& tensor, Way way) {
  if (communicator_.size() == 1) return;
  if (way != way_) send(context);
  way_ = way;
  bucket_.push_back(tensor);
  held_ += tensor.bytes();
  if (held_ >= bucket_bytes_) send(context);
}

void GradientReduction::send(Context& context) {
  if (bucket_.empty()) return;
  if (way_ == Way::Gather)
    communicator_.gather(context, bucket_);
  else if (sharded_)
    communicator_.reduce(context, bucket_);
  else
    communicator_.all_reduce(context, bucket_);
  bucket_.clear();
  held_ = 0;
}

void GradientReduction::finish(Context& context) {
  send(context);
  communicator_.wait(context);
}

}  // namespace compact
