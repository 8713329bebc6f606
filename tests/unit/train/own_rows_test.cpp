#include "unit/train/own_rows_testing.h"

#include <array>

#include "unit/io/io_testing.h"

/// Optimizers that have some rows of each parameter: what they keep, and that all of them together are the
/// optimizer of the whole.
namespace compact {
namespace {

using testing::on_cuda;
using testing::setting;
using testing::Setting;
using testing::Shares;
using testing::small_model;

void expect_same(const std::map<std::string, std::vector<float>>& a,
                 const std::map<std::string, std::vector<float>>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (const auto& [name, values] : a)
    EXPECT_TRUE(b.contains(name) && testing::same_bits(values, b.at(name))) << what << ": " << name;
}

/// Whether nothing but our own loops and kernels makes the values: libraries add up the products of dense
/// projections and of a transport in an order that depends on the rows and on the machine.
bool without_libraries(const Setting& s) {
  if (!s.model.compact) return true;
  const ProjectionKind kind = s.model.compact->projection;
  const bool dense = kind == ProjectionKind::Gaussian || kind == ProjectionKind::Orthonormal;
  return s.optimizer.at_reseed != AtReseed::Transport && (on_cuda() || !dense);
}

/// Equal but for last bits of sums, and for the few bf16 values that were rounded another way for those.
void expect_alike(const std::map<std::string, std::vector<float>>& a,
                  const std::map<std::string, std::vector<float>>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (const auto& [name, x] : a) {
    const std::vector<float>& y = b.at(name);
    ASSERT_EQ(x.size(), y.size()) << what << ": " << name;
    std::size_t apart = 0;
    for (std::size_t i = 0; i < x.size(); ++i) apart += std::abs(x[i] - y[i]) > 1e-5f ? 1 : 0;
    EXPECT_LE(apart, x.size() / 20) << what << ": " << name;
  }
}

/// Every option that changes what is kept or how it moves.
std::vector<Setting> settings() {
  std::vector<Setting> all;
  const auto add_types = [&](const Setting& base, DType weights) {
    for (const DType states : {DType::F32, DType::BF16})
      for (const bool masters : {false, true})
        for (const bool stochastic : {false, true}) {
          if (weights == DType::F32 && (masters || stochastic)) continue;
          if (masters && stochastic) continue;
          Setting s = base;
          s.optimizer.state_dtype = states;
          s.optimizer.master_weights = masters;
          s.optimizer.stochastic_rounding = stochastic;
          s.text += std::string(states == DType::BF16 ? ", bf16 states" : "") + (masters ? ", masters" : "") +
                    (stochastic ? ", stochastic" : "");
          all.push_back(s);
        }
  };
  for (const DType weights : {DType::F32, DType::BF16}) {
    add_types(setting("adamw", weights), weights);
    for (const char* kind : {"gaussian", "orthonormal", "hadamard", "sparse"})
      for (const bool per_channel : {false, true})
        for (const AtReseed at_reseed : {AtReseed::Keep, AtReseed::Reset, AtReseed::Transport}) {
          Setting s = setting("compact", weights);
          s.model.compact->projection = projection_kind_from(kind);
          // Each of the others is met with one of the two; what P is shared by does not touch them.
          const bool per_weight = per_channel != (at_reseed == AtReseed::Reset);
          s.model.compact->sharing = per_weight ? Sharing::PerWeight : Sharing::PerInput;
          s.optimizer.per_channel = per_channel;
          s.optimizer.at_reseed = at_reseed;
          s.text += std::string(" ") + kind + (per_channel ? ", per channel" : "") +
                    (per_weight ? ", P per weight" : "") +
                    (at_reseed == AtReseed::Reset       ? ", reset"
                     : at_reseed == AtReseed::Transport ? ", transport"
                                                        : "");
          add_types(s, weights);
        }
  }
  return all;
}

TEST(OwnRows, AreCutThroughMembersAndCoverThem) {
  std::vector<float> memory(20 * 3), norm(3);
  Parameter fused, norms;
  fused.members = {{"q", Role::Q, 0, 8}, {"k", Role::K, 8, 2}, {"v", Role::V, 10, 2}};
  fused.weight = Tensor(memory.data(), {12, 3}, DType::F32);
  fused.gradient = Tensor(memory.data(), {12, 1}, DType::F32);
  norms.members = {{"norm", Role::Norm, 0, 1}};
  norms.weight = norms.gradient = Tensor(norm.data(), {3}, DType::F32);
  const std::vector<Parameter> whole = {fused, norms};

  const std::vector<Parameter> own = own_rows(whole, 1, 5);  // rows [2, 4)
  EXPECT_EQ(own[0].first_row, 2);
  EXPECT_EQ(own[0].weight.shape.text(), "[2, 3]");
  EXPECT_EQ(own[0].weight.f32(), memory.data() + 6);
  EXPECT_EQ(own[0].gradient.f32(), memory.data() + 2);
  ASSERT_EQ(own[0].members.size(), 3u);
  EXPECT_EQ(own[0].members[0].rows, 2);
  EXPECT_EQ(own[0].members[0].rows_before, 2);
  EXPECT_EQ(own[0].members[0].rows_after, 4);
  EXPECT_EQ(own[0].members[1].rows, 0);
  EXPECT_EQ(own[0].members[1].rows_after, 2);
  EXPECT_EQ(own[0].role(), Role::Q);
  EXPECT_EQ(own[1].weight.elements(), 0);
  EXPECT_EQ(own[1].role(), Role::Norm);

  const std::vector<Parameter> last = own_rows(whole, 4, 5);  // rows [9, 12): the last of k, and v
  EXPECT_EQ(last[0].members[0].rows, 0);
  EXPECT_EQ(last[0].members[0].rows_before, 8);
  EXPECT_EQ(last[0].members[1].first_row, 0);
  EXPECT_EQ(last[0].members[1].rows, 1);
  EXPECT_EQ(last[0].members[1].rows_before, 1);
  EXPECT_EQ(last[0].members[2].first_row, 1);
  EXPECT_EQ(last[0].members[2].rows, 2);
  EXPECT_EQ(last[1].weight.shape.text(), "[3]");

  const std::vector<Parameter> all = own_rows(whole, 0, 1);
  EXPECT_EQ(all[0].weight.shape.text(), "[12, 3]");
  EXPECT_EQ(all[1].weight.shape.text(), "[3]");
  EXPECT_EQ(all[0].members[2].first_row, 10);

  for (int size = 1; size <= 14; ++size)  // more ranks than rows, too
    for (std::size_t m = 0; m < 3; ++m) {
      std::int64_t rows = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Parameter p = own_rows(whole, rank, size)[0];
        if (p.members[m].rows > 0) {
          EXPECT_EQ(p.members[m].rows_before, rows);
        }
        EXPECT_EQ(p.members[m].file_rows(), whole[0].members[m].rows);
        EXPECT_LE(p.members[m].first_row + p.members[m].rows, p.weight.rows());
        rows += p.members[m].rows;
      }
      EXPECT_EQ(rows, whole[0].members[m].rows);
    }
}

TEST(OwnRows, UpdatedApartAreTheWhole) {
  const std::vector<Setting> all = settings();
  // The emulation is slow: some of them there, which meet every option.
  for (std::size_t i = 0; i < all.size(); i += on_cuda() ? 17 : 1) {
    Shares whole(all[i], 0);
    for (std::int64_t t = 0; t < 5; ++t) whole.update(t);
    const auto want = whole.everything();
    // Every option meets every number of ranks.
    const int size = std::array{2, 3, 5}[(i + i / 6) % 3];
    Shares shares(all[i], size);
    for (std::int64_t t = 0; t < 5; ++t) shares.update(t);
    const auto expect = without_libraries(all[i]) ? expect_same : expect_alike;
    expect(shares.everything(), want, all[i].text + " by " + std::to_string(size));
  }
}

TEST(OwnRows, TakeTheMemoryOfTheWholeTogether) {
  Setting s = setting("compact", DType::BF16);
  s.optimizer.master_weights = true;
  s.optimizer.per_channel = true;
  for (const int size : {1, 2, 3, 5, 70}) {
    const Shares shares(s, size);
    std::int64_t together = 0, whole = 0, largest = 0;
    for (const auto& rank : shares.ranks) {
      std::int64_t own = 0, aligned = 0;
      whole = 0;
      for (const NamedTensor& t : rank->optimizer->states()) {
        own += t.data.bytes();
        whole += t.shape().elements() * size_of(t.data.dtype);
      }
      const auto now = rank->arena.ledger().now();
      for (const Category c : {Category::Optimizer, Category::Master})
        aligned += now[static_cast<std::size_t>(c)];
      EXPECT_GE(aligned, own);
      EXPECT_LE(aligned, own + 255 * 3 * static_cast<std::int64_t>(rank->parameters.size()));
      together += own;
      largest = std::max(largest, own);

      Arena plan(Device::Plan, Arena::kUnlimited, testing::test_device());
      Context context(plan);
      make_optimizer(s.optimizer)->allocate(context, rank->parameters);
      EXPECT_EQ(plan.ledger().now(), now);
    }
    EXPECT_EQ(together, whole);
    EXPECT_LE(largest, whole / size + whole / 8) << size;
  }
}

class OwnRowsOnDisk : public FolderTest {};

TEST_F(OwnRowsOnDisk, AnyNumberOfRanksReadsWhatAnotherWrote) {
  for (const bool compressed : {false, true})
    for (const bool masters : {false, true}) {
      Setting s = setting(compressed ? "compact" : "adamw", DType::BF16);
      s.optimizer.state_dtype = masters ? DType::F32 : DType::BF16;
      s.optimizer.master_weights = masters;
      s.optimizer.per_channel = true;
      if (compressed) s.model.compact->projection = ProjectionKind::Sparse;  // see without_libraries
      std::map<std::string, std::vector<float>> saved, later;
      std::string bytes;
      for (const int size : {1, 2, 3, 5}) {
        Shares shares(s, size);
        for (std::int64_t t = 0; t < 2; ++t) shares.update(t);
        const std::string path = at("step_" + std::to_string(size));
        shares.write(path);
        const std::string written = bytes_of_file(path + "/optimizer.safetensors");
        if (size == 1) {
          saved = shares.everything();
          bytes = written;
          shares.update(2);
          later = shares.everything();
        }
        EXPECT_TRUE(written == bytes) << size;
        for (const int readers : {1, 2, 4}) {
          const std::string what = std::to_string(size) + " to " + std::to_string(readers);
          Shares others(s, readers);
          others.read(path);
          expect_same(others.everything(), saved, what);
          others.update(2);
          expect_same(others.everything(), later, what);
        }
      }
    }
}

TEST_F(OwnRowsOnDisk, OfAWeightsFileAreReadInItsPrecision) {
  Shares source(setting("adamw"), 1);
  source.write(at("model"));
  Setting s = setting("adamw", DType::BF16);
  s.optimizer.master_weights = true;
  Shares shares(s, 3);
  std::map<std::string, std::vector<float>> masters;
  for (const auto& rank : shares.ranks) {
    std::vector<NamedTensor> into;
    for (NamedTensor t : rank->optimizer->states())
      if (t.name.ends_with(".master")) {
        t.name.resize(t.name.size() - 7);
        into.push_back(t);
      }
    load_weights(at("model"), small_model(), into, HostAccess(testing::test_queue()));
  }
  const auto all = shares.everything();
  for (const NamedTensor& t : source.model->named_weights())
    EXPECT_TRUE(testing::same_bits(all.at(t.name + ".master"), testing::floats(t.data))) << t.name;
}

TEST_F(OwnRowsOnDisk, OfAnotherShapeOrOutOfRangeAreRefused) {
  std::vector<float> values(12);
  const std::string path = at("f.safetensors");
  write_safetensors(path, {{"x", Tensor(values.data(), {4, 3}, DType::F32)}}, {});
  const SafetensorsReader file(path);
  const Tensor row(values.data(), {1, 3}, DType::F32);
  file.read({"x", row, {4, 3}, 9});
  file.read({"x", Tensor(nullptr, {0, 3}, DType::F32), {4, 3}, 12});
  EXPECT_THROW(file.read({"x", row, {5, 3}, 0}), InputError);
  EXPECT_THROW(file.read({"x", row, {4, 3}, 10}), std::logic_error);
  EXPECT_THROW(write_safetensors(path, {{"x", row, {4, 3}, 0}}, {}), std::logic_error);
}

}  // namespace
}  // namespace compact
