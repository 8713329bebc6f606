#pragma once

namespace compact {

/// Finds NCCL. Throws InputError where there is none, or one that is too old.
void load_nccl();

}  // namespace compact
