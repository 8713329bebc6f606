#include "compact/dist/communicator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compact/core/bf16.h"
#include "compact/dist/rows.h"
#include "rank_threads.h"

/// What ranks say to each other, against plain loops and to the bit.
namespace compact::testing {
namespace {

/// A tensor of random values in memory of its own, between guards.
class Owned {
 public:
  Owned(Shape shape, DType dtype, std::uint32_t seed)
      : bytes_(static_cast<std::size_t>(shape.elements() * size_of(dtype)) + 2 * kGuard, std::byte{0x5a}),
        tensor_(bytes_.data() + kGuard, shape, dtype) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < tensor_.elements(); ++i) {
      const double x = normal(generator) * std::exp2(static_cast<int>(generator() % 12));
      if (dtype == DType::F64)
        tensor_.as<double>()[i] = x;
      else if (dtype == DType::BF16)
        put(tensor_.as<Bf16>()[i], static_cast<float>(x));
      else
        tensor_.f32()[i] = static_cast<float>(x);
    }
  }
  ~Owned() {
    for (std::size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(bytes_[i], std::byte{0x5a});
      EXPECT_EQ(bytes_[bytes_.size() - 1 - i], std::byte{0x5a});
    }
  }
  Owned(const Owned&) = delete;
  const Tensor& tensor() const { return tensor_; }

 private:
  static constexpr std::size_t kGuard = 64;
  std::vector<std::byte> bytes_;
  Tensor tensor_;
};

struct Kind {
  Shape shape;
  DType dtype = DType::F32;
};

/// Odd shapes, one row, fewer rows than ranks, several types; the second is far larger than small buckets.
const std::vector<Kind> kKinds = {{{1}, DType::F64},       {{203, 7}, DType::F32}, {{24}, DType::F32},
                                  {{3, 5}, DType::BF16},   {{2, 1}, DType::F32},   {{61, 24}, DType::BF16},
                                  {{4, 3, 5}, DType::F64}, {{1, 1}, DType::BF16},  {{5, 33}, DType::F32},
                                  {{1031, 1}, DType::BF16}};

using Bytes = std::vector<std::byte>;
Bytes bytes_of(const Tensor& t) {
  const auto* data = static_cast<const std::byte*>(t.data);
  return {data, data + t.bytes()};
}

std::vector<std::unique_ptr<Owned>> make_tensors(int rank, std::uint32_t seed = 0) {
  std::vector<std::unique_ptr<Owned>> all;
  for (std::size_t i = 0; i < kKinds.size(); ++i)
    all.push_back(std::make_unique<Owned>(
        kKinds[i].shape, kKinds[i].dtype,
        seed * 100000 + static_cast<std::uint32_t>(rank) * 100 + static_cast<std::uint32_t>(i)));
  return all;
}
std::vector<Tensor> views(const std::vector<std::unique_ptr<Owned>>& owned) {
  std::vector<Tensor> all;
  for (const auto& o : owned) all.push_back(o->tensor());
  return all;
}

/// Sum over the ranks' tensors `i`, in rank order; BF16 in fp32 and rounded once.
Bytes plain_sum(int size, std::size_t i, std::uint32_t seed = 0) {
  std::vector<std::vector<std::unique_ptr<Owned>>> given;
  for (int k = 0; k < size; ++k) given.push_back(make_tensors(k, seed));
  const Tensor sum = given[0][i]->tensor();
  for (std::int64_t e = 0; e < sum.elements(); ++e) {
    const auto at = [&](int k) { return given[static_cast<std::size_t>(k)][i]->tensor(); };
    if (sum.dtype == DType::F64) {
      for (int k = 1; k < size; ++k) sum.as<double>()[e] += at(k).as<double>()[e];
    } else if (sum.dtype == DType::F32) {
      for (int k = 1; k < size; ++k) sum.f32()[e] += at(k).f32()[e];
    } else {
      float wide = to_float(sum.as<Bf16>()[e]);
      for (int k = 1; k < size; ++k) wide += to_float(at(k).as<Bf16>()[e]);
      put(sum.as<Bf16>()[e], wide);
    }
  }
  return bytes_of(sum);
}

const std::vector<std::int64_t> kBuckets = {1, 512, 1000, 4096, 1 << 20};
constexpr std::int64_t kRoom = std::int64_t{2} << 20;

class Collectives : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }

  /// On every rank, with every bucket size: `check` sees what `call` has made of that rank's tensors.
  template <typename Check>
  void after(void (Communicator::*call)(Context&, std::span<const Tensor>), Check check) const {
    for (const std::int64_t bucket : kBuckets) {
      on_ranks(size(), [&](Communicator& c) {
        Arena arena(Device::Cpu, kRoom);
        Context context(arena);
        c.reserve(context, bucket);
        const auto tensors = make_tensors(c.rank());
        (c.*call)(context, views(tensors));
        c.wait(context);
        check(c, tensors, bucket);
      });
    }
  }
};

TEST_P(Collectives, SumIsInRankOrder) {
  const auto values_of = [](int rank) {
    std::mt19937 generator(static_cast<std::uint32_t>(rank));
    std::normal_distribution<double> normal;
    std::vector<double> values(100);
    for (double& v : values) v = normal(generator) * std::exp2(static_cast<int>(generator() % 12));
    return values;
  };
  std::vector<double> want = values_of(0), other = values_of(size() - 1);
  for (int k = 1; k < size(); ++k)
    for (std::size_t i = 0; i < want.size(); ++i) {
      want[i] += values_of(k)[i];
      other[i] += values_of(size() - 1 - k)[i];
    }
  if (size() > 2) {
    EXPECT_NE(want, other) << "the order can be seen";
  }
  on_ranks(size(), [&](Communicator& c) {
    for (int again = 0; again < 20; ++again) {
      std::vector<double> values = values_of(c.rank());
      c.sum(values);
      EXPECT_EQ(values, want);
      c.sum({});
    }
  });
}

TEST_P(Collectives, TextsOfAnyBytesAndLengths) {
  const auto text = [](int rank, int turn) {
    std::string s(static_cast<std::size_t>((rank * 7 + turn * 3) % 5 * 1000), '\0');
    for (std::size_t i = 0; i < s.size(); ++i)
      s[i] = static_cast<char>(i * 31 + static_cast<std::size_t>(rank));
    return s;
  };
  on_ranks(size(), [&](Communicator& c) {
    for (int turn = 0; turn < 6; ++turn) {
      const std::vector<std::string> all = c.gather_texts(text(c.rank(), turn));
      ASSERT_EQ(all.size(), static_cast<std::size_t>(size()));
      for (int k = 0; k < size(); ++k) EXPECT_EQ(all[static_cast<std::size_t>(k)], text(k, turn));
    }
    for (const std::string& empty : c.gather_texts("")) EXPECT_EQ(empty, "");
  });
}

TEST_P(Collectives, CollectPutsBytesInRankOrderOnRankZero) {
  on_ranks(size(), [&](Communicator& c) {
    for (const int none : {-1, 0, size() - 1}) {  // a rank that gives nothing
      const auto given = [&](int rank) {
        Bytes b(rank == none ? 0 : static_cast<std::size_t>(rank) * 100 + 1);
        for (std::size_t i = 0; i < b.size(); ++i)
          b[i] = static_cast<std::byte>(i + static_cast<std::size_t>(rank));
        return b;
      };
      Bytes want;
      for (int k = 0; k < size() && c.rank() == 0; ++k) {
        const Bytes b = given(k);
        want.insert(want.end(), b.begin(), b.end());
      }
      EXPECT_EQ(c.collect(given(c.rank())), want);
    }
  });
}

// Equal bits for every bucket size, from one round to hundreds.
TEST_P(Collectives, AllReduceIsThePlainSum) {
  std::vector<Bytes> want;
  for (std::size_t i = 0; i < kKinds.size(); ++i) want.push_back(plain_sum(size(), i));
  after(&Communicator::all_reduce, [&](Communicator&, const auto& tensors, std::int64_t bucket) {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      EXPECT_EQ(bytes_of(tensors[i]->tensor()), want[i]) << "tensor " << i << ", bucket " << bucket;
  });
}

TEST_P(Collectives, ReduceSumsTheOwnRows) {
  std::vector<Bytes> want;
  for (std::size_t i = 0; i < kKinds.size(); ++i) want.push_back(plain_sum(size(), i));
  after(&Communicator::reduce, [&](Communicator& c, const auto& tensors, std::int64_t bucket) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Tensor all(want[i].data(), kKinds[i].shape, kKinds[i].dtype);
      const Rows own = rows_of(all, c.rank(), c.size());
      EXPECT_EQ(bytes_of(rows_in(tensors[i]->tensor(), own)), bytes_of(rows_in(all, own)))
          << i << ", bucket " << bucket;
    }
  });
}

TEST_P(Collectives, GatherGivesEachRanksRowsToAll) {
  std::vector<std::vector<std::unique_ptr<Owned>>> given;
  for (int k = 0; k < size(); ++k) given.push_back(make_tensors(k));
  after(&Communicator::gather, [&](Communicator&, const auto& tensors, std::int64_t bucket) {
    for (std::size_t i = 0; i < tensors.size(); ++i)
      for (int k = 0; k < size(); ++k) {
        const Tensor& from = given[static_cast<std::size_t>(k)][i]->tensor();
        const Rows rows = rows_of(from, k, size());
        EXPECT_EQ(bytes_of(rows_in(tensors[i]->tensor(), rows)), bytes_of(rows_in(from, rows)))
            << i << ", bucket " << bucket;
      }
  });
}

TEST_P(Collectives, CallsBeforeOneWaitAreDoneInTheirOrder) {
  for (const std::int64_t bucket : kBuckets) {
    std::vector<std::map<std::string, Bytes>> got(static_cast<std::size_t>(size()));
    on_ranks(size(), [&](Communicator& c) {
      Arena arena(Device::Cpu, kRoom);
      Context context(arena);
      c.reserve(context, bucket);
      const auto a = make_tensors(c.rank(), 1), b = make_tensors(c.rank(), 2), d = make_tensors(c.rank(), 3);
      const auto va = views(a), vb = views(b), vd = views(d);
      c.all_reduce(context, va);
      c.reduce(context, vb);
      c.all_reduce(context, va);  // sums of sums
      c.gather(context, vb);
      c.all_reduce(context, {});
      c.all_reduce(context, {&vd[1], 1});
      c.wait(context);
      c.wait(context);
      for (std::size_t i = 0; i < kKinds.size(); ++i) {
        auto& mine = got[static_cast<std::size_t>(c.rank())];
        mine["a" + std::to_string(i)] = bytes_of(va[i]);
        mine["b" + std::to_string(i)] = bytes_of(vb[i]);
        EXPECT_EQ(bytes_of(vb[i]), plain_sum(size(), i, 2)) << i;  // reduce, then gather
      }
      EXPECT_EQ(bytes_of(vd[1]), plain_sum(size(), 1, 3));
    });
    for (const auto& mine : got) EXPECT_EQ(mine, got[0]);
    Bytes once = plain_sum(size(), 1, 1);
    const Tensor sum(once.data(), kKinds[1].shape, DType::F32);
    const Bytes& result = got[0].at("a1");
    const Tensor twice(const_cast<std::byte*>(result.data()), kKinds[1].shape, DType::F32);
    for (std::int64_t e = 0; e < sum.elements(); ++e) {
      float want = sum.f32()[e];
      for (int k = 1; k < size(); ++k) want += sum.f32()[e];
      ASSERT_EQ(twice.f32()[e], want);
    }
  }
}

// What is said on the host while tensors are on their way: it comes behind them, as it was called.
TEST_P(Collectives, HostCallsMayComeBeforeTheWait) {
  on_ranks(size(), [&](Communicator& c) {
    Arena arena(Device::Cpu, kRoom);
    Context context(arena);
    c.reserve(context, 512);
    for (std::uint32_t turn = 0; turn < 20; ++turn) {
      const auto tensors = make_tensors(c.rank(), turn);
      c.all_reduce(context, views(tensors));
      double ranks[] = {1};
      c.sum(ranks);
      EXPECT_EQ(ranks[0], size());
      c.all_reduce(context, views(tensors));
      const auto texts = c.gather_texts(std::to_string(c.rank()));
      for (int k = 0; k < size(); ++k) EXPECT_EQ(texts[static_cast<std::size_t>(k)], std::to_string(k));
      c.wait(context);
    }
  });
}

// wire_bytes is an average: all ranks together send it `size` times, to the byte.
TEST_P(Collectives, SendWhatIsCountedAndPlanned) {
  struct Calls {
    const char* name;
    int sent;  // times each tensor is sent, of which each rank keeps its share
    std::function<void(Communicator&, Context&, const std::vector<Tensor>&)> make;
  };
  const Calls calls[] = {
      {"all_reduce", 2,
       [](Communicator& c, Context& x, const std::vector<Tensor>& t) { c.all_reduce(x, t); }},
      {"reduce", 1, [](Communicator& c, Context& x, const std::vector<Tensor>& t) { c.reduce(x, t); }},
      {"gather", 1, [](Communicator& c, Context& x, const std::vector<Tensor>& t) { c.gather(x, t); }},
      {"several", 3, [](Communicator& c, Context& x, const std::vector<Tensor>& t) {
         c.all_reduce(x, t);
         c.gather(x, t);
       }}};
  std::int64_t bytes = 0;
  for (const Kind& kind : kKinds) bytes += kind.shape.elements() * size_of(kind.dtype);
  for (const Calls& call : calls)
    for (const std::int64_t bucket : {std::int64_t{1000}, std::int64_t{1} << 20}) {
      const auto office = std::make_shared<MailTransport::Office>();
      std::vector<std::unique_ptr<Communicator>> ranks;
      for (int k = 0; k < size(); ++k)
        ranks.push_back(make_host_communicator(std::make_unique<MailTransport>(office, k, size())));
      std::vector<std::int64_t> taken(ranks.size());
      on_ranks(ranks, [&](Communicator& c) {
        Arena arena(Device::Cpu, kRoom);
        Context context(arena);
        c.reserve(context, bucket);
        EXPECT_EQ(c.wire_bytes(), 0);
        const auto tensors = make_tensors(c.rank());
        call.make(c, context, views(tensors));
        c.wait(context);
        taken[static_cast<std::size_t>(c.rank())] = arena.ledger().peak();
        EXPECT_EQ(c.wire_bytes(), static_cast<double>(call.sent * bytes * (size() - 1)) / size())
            << call.name;
      });
      EXPECT_EQ(office->bytes, call.sent * bytes * (size() - 1)) << call.name;
      for (const auto& letters : office->letters) EXPECT_TRUE(letters.second.empty());

      for (int k = 0; k < size(); ++k) {
        Arena arena(Device::Plan, Arena::kUnlimited);
        Context context(arena);
        const auto plan = make_plan_communicator(k, size());
        EXPECT_EQ(plan->rank(), k);
        EXPECT_EQ(plan->size(), size());
        plan->reserve(context, bucket);
        std::vector<Tensor> tensors;
        for (const Kind& kind : kKinds) tensors.emplace_back(nullptr, kind.shape, kind.dtype);
        call.make(*plan, context, tensors);
        plan->wait(context);
        EXPECT_EQ(plan->wire_bytes(), ranks[0]->wire_bytes());
        EXPECT_EQ(arena.ledger().peak(), taken[static_cast<std::size_t>(k)]);
      }
    }
}

TEST_P(Collectives, ReserveTakesNoMoreThanTheBucket) {
  for (const std::int64_t bucket : {64 * 5, 1000, 100000}) {
    Arena arena(Device::Plan, Arena::kUnlimited);
    Context context(arena);
    make_plan_communicator(size() - 1, size())->reserve(context, bucket);
    EXPECT_EQ(arena.ledger().peak(), size() == 1 ? 0 : bucket / 64 * 64) << bucket;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 4, 5));

TEST(OneRank, IsToldNothingAndKeepsItsValues) {
  const auto c = make_local_communicator();
  EXPECT_EQ(c->rank(), 0);
  EXPECT_EQ(c->size(), 1);
  double value[] = {3};
  c->sum(value);
  EXPECT_EQ(value[0], 3);
  EXPECT_EQ(c->gather_texts("x"), std::vector<std::string>{"x"});
  Arena arena(Device::Cpu, 1 << 16);
  Context context(arena);
  c->reserve(context, 1 << 20);
  EXPECT_EQ(arena.ledger().peak(), 0);
  const Owned a({7, 3}, DType::F32, 1);
  const Bytes before = bytes_of(a.tensor());
  c->all_reduce(context, {&a.tensor(), 1});
  c->wait(context);
  EXPECT_EQ(bytes_of(a.tensor()), before);
  EXPECT_EQ(c->wire_bytes(), 0);
  EXPECT_THROW(c->fail(2, "text"), InputError);
  EXPECT_THROW(c->fail(1, "text"), RunError);
}

TEST(SeveralRanks, RulesOfTensorsAreChecked) {
  on_ranks(2, [](Communicator& c) {
    Arena arena(Device::Cpu, 1 << 16);
    Context context(arena);
    const Owned a({6, 4}, DType::F32, 1);
    EXPECT_THROW(c.all_reduce(context, {&a.tensor(), 1}), std::logic_error);  // nothing reserved
    c.reserve(context, 4096);
    const Tensor apart = a.tensor().columns(0, 2);
    EXPECT_THROW(c.all_reduce(context, {&apart, 1}), std::logic_error);
  });
}

}  // namespace
}  // namespace compact::testing
