#include "compact/dist/communicator.h"

#include <algorithm>

#include "compact/core/error.h"
#include "compact/dist/launcher.h"
#include "transport.h"

namespace compact {

namespace {

/// A rank that talks to nobody: the only one, or one in a plan.
class NoTransport final : public Transport {
 public:
  explicit NoTransport(RankPlace place) : place_(place) {}
  RankPlace place() const override { return place_; }
  void exchange(std::span<const Message> sends, std::span<const Message> receives) override {
    require(sends.empty() && receives.empty(), "Transport", "there is no other rank");
  }
  void set_patience(Patience) override {}
  [[noreturn]] void fail(int code, const std::string& text) override {
    if (code == 2) throw InputError(text);
    throw RunError(text);
  }

 private:
  RankPlace place_;
};

}  // namespace

std::unique_ptr<Communicator> make_local_communicator() {
  return make_host_communicator(std::make_unique<NoTransport>(RankPlace{}));
}

std::unique_ptr<Communicator> make_plan_communicator(int rank, int size) {
  return make_host_communicator(std::make_unique<NoTransport>(RankPlace{rank, size, rank, size}));
}

void together(Communicator& communicator, const std::function<void()>& work) {
  if (communicator.size() == 1) return work();
  int code = 0;  // that the process would end with
  std::string text;
  try {
    work();
  } catch (const InputError& error) {
    code = 2;
    text = error.what();
  } catch (const RunError& error) {
    code = 1;
    text = error.what();
  }
  const std::vector<std::string> codes = communicator.gather_texts(std::to_string(code));
  const std::string worst = *std::max_element(codes.begin(), codes.end());
  if (worst == "0") return;
  const std::vector<std::string> texts = communicator.gather_texts(text),
                                 hosts = communicator.gather_texts(host_name());
  if (communicator.rank() != 0) throw SaidElsewhere(std::stoi(worst));
  const auto first = static_cast<std::size_t>(std::find(codes.begin(), codes.end(), worst) - codes.begin());
  const auto failed = communicator.size() - std::count(codes.begin(), codes.end(), "0");
  // What all say, or what rank 0 alone looks after, is no matter of a rank.
  const bool alike = std::count(texts.begin(), texts.end(), texts[first]) == communicator.size() ||
                     (failed == 1 && first == 0);
  const std::string told =
      alike ? texts[first]
            : fmt::format("rank {} of {}, on {}: {}", first, communicator.size(), hosts[first], texts[first]);
  if (worst == "2") throw KnownToAll<InputError>(told);
  throw KnownToAll<RunError>(told);
}

void end_together(Communicator& communicator, const std::function<void()>& work) {
  if (communicator.size() == 1) return work();
  try {
    work();
  } catch (const SaidElsewhere&) {
    throw;
  } catch (const KnownToAll<InputError>&) {
    throw;
  } catch (const KnownToAll<RunError>&) {
    throw;
  } catch (const InputError& error) {
    communicator.fail(2, error.what());
  } catch (const std::bad_alloc&) {
    communicator.fail(1, "out of memory: the system refused more; compact plan shows what a run needs");
  } catch (const std::exception& error) {
    communicator.fail(1, error.what());
  }
}

}  // namespace compact
