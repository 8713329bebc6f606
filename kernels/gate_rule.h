#pragma once
#include "compact/core/host_device.h"

/// The rules of compact/kernels/update_gate.h and global_norm.h, the same on every device.
namespace compact {

/// True where nothing may change. `gate` lies in memory that the caller reads; null: there is none, so open.
[[gnu::always_inline]] COMPACT_HOST_DEVICE static inline bool gate_closed(const float* gate) {
  return gate != nullptr && gate[1] == 0.0f;
}
/// What gradients are multiplied by, beside AdamStep::gradient_scale.
[[gnu::always_inline]] COMPACT_HOST_DEVICE static inline float gate_factor(const float* gate) {
  return gate == nullptr ? 1.0f : gate[0];
}

[[gnu::always_inline]] COMPACT_HOST_DEVICE static inline float clip_factor(double norm, double max_norm) {
  return norm > max_norm ? static_cast<float>(max_norm / norm) : 1.0f;
}

/// squares [1], gate [3].
[[gnu::always_inline]] COMPACT_HOST_DEVICE static inline void judge(double loss, double norm, double max_norm,
                                                                    double* squares, float* gate) {
  *squares += norm * norm;
  const double both = loss + norm;  // norm is not negative: two infinities do not cancel to something finite
  if (!(both - both == 0.0)) gate[1] = 0.0f;
  if (gate[1] == 0.0f) return;
  gate[0] = max_norm > 0.0 ? clip_factor(norm, max_norm) : 1.0f;
  gate[2] += 1.0f;
}

}  // namespace compact
