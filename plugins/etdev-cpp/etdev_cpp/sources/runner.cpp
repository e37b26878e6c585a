// The C++ runner of etdev: loads programs into ExecuTorch's Module and calls their methods.
//
// It reads orders from standard input and writes answers to standard output until its input ends.
// An order is a frame that opens with a letter:
//
//   `k` names of backends, names of kernels    which of them does this runtime lack?
//   `l` program, method                        load a method
//   `r` program, repeat, calls                 call methods in turn, each by name and inputs
//   `t` program, method, inputs, count         call a method with the event tracer
//
// A program is the path of its .pte, that of its .ptd or nothing, and a byte: 1 if its methods
// share their arenas. An answer is a number of frames that open with `v`, each with a value, then
// one that is `.`, or `e` and the text of an error.
#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/module/module.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/portable_type/tensor.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <executorch/runtime/platform/runtime.h>
#include <fcntl.h>
#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <set>
#include <thread>

#include "frames.h"

// As in ExecuTorch's threadpool.h, which its wheel has no copy of.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  bool _unsafe_reset_threadpool(uint32_t threads);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool

namespace etdev {
namespace {

using executorch::etdump::ETDumpGen;
using executorch::extension::Module;
using executorch::runtime::Error;
using executorch::runtime::Program;

void require(Error error, const std::string& what) {
  if (error != Error::Ok) {
    throw std::runtime_error(std::string(to_string(error)) + " when it " + what);
  }
}

std::unique_ptr<Module> load(Reader& order, std::unique_ptr<ETDumpGen> tracer = nullptr) {
  const std::string path = order.text();
  const std::string data = order.text();
  const bool share_arenas = order.number<char>() != 0;
  std::vector<std::string> files;
  if (!data.empty()) files.push_back(data);
  auto module = std::make_unique<Module>(
      path, files, Module::LoadMode::File, std::move(tracer), nullptr, nullptr, share_arenas);
  require(module->load(Program::Verification::InternalConsistency), "loaded the program");
  return module;
}

// A call of a method; its tensors are kept in `held`.
struct Call {
  explicit Call(Reader& order) : method(order.text()) {
    for (auto left = order.number<uint64_t>(); left > 0; --left) {
      inputs.push_back(order.value(held));
    }
  }

  std::string method;
  std::vector<TensorPtr> held;
  std::vector<EValue> inputs;
};

// Loads a method; outputs that ExecuTorch planned no memory for get some, which is kept in `held`.
void load_method(Module& module, const std::string& method, std::vector<TensorPtr>& held) {
  if (module.is_method_loaded(method)) return;
  require(module.load_method(method), "loaded method " + method);
  const auto outputs = module.get_outputs(method);
  require(outputs.error(), "looked for the outputs of " + method);
  for (size_t index = 0; index < outputs->size(); ++index) {
    if (!outputs->at(index).isTensor()) continue;
    const auto& tensor = outputs->at(index).toTensor();
    if (tensor.const_data_ptr() != nullptr || tensor.nbytes() == 0) continue;
    held.push_back(executorch::extension::make_tensor_ptr(
        {tensor.sizes().begin(), tensor.sizes().end()}, std::vector<uint8_t>(tensor.nbytes()),
        {tensor.dim_order().begin(), tensor.dim_order().end()}, {}, tensor.scalar_type()));
    require(module.set_output(method, EValue(*held.back()), index), "gave an output memory");
  }
}

std::vector<EValue> execute(Module& module, const Call& call) {
  auto outputs = module.execute(call.method, call.inputs);
  require(outputs.error(), "executed " + call.method);
  return std::move(outputs.get());
}

void name_missing(Reader& order, int answers) {
  std::vector<std::string> backends, kernels;
  for (const auto& name : order.texts()) {
    const auto* backend = executorch::runtime::get_backend_class(name.c_str());
    if (backend == nullptr || !backend->is_available()) backends.push_back(name);
  }
  std::set<std::string> known;
  for (const auto& kernel : executorch::runtime::get_registered_kernels()) {
    known.insert(kernel.name_);
  }
  for (const auto& name : order.texts()) {
    if (known.count(name) == 0) kernels.push_back(name);
  }
  Writer().number('v').texts(backends).texts(kernels).send(answers);
}

void call_methods(Reader& order, int answers) {
  using Clock = std::chrono::steady_clock;
  const auto module = load(order);
  const auto repeat = order.number<uint64_t>();
  std::vector<Call> calls;
  std::vector<TensorPtr> memory;
  for (auto left = order.number<uint64_t>(); left > 0; --left) calls.emplace_back(order);
  // All before the first call, since loading a method writes the initial values of its state.
  for (const auto& call : calls) load_method(*module, call.method, memory);
  for (const auto& call : calls) {
    Writer answer;
    std::vector<double> times;
    for (uint64_t run = 0; run <= repeat; ++run) {
      const auto start = Clock::now();
      const auto outputs = execute(*module, call);
      times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
      // The next call overwrites the outputs.
      if (run == 0) answer.number('v').values(outputs);
    }
    // The first call warms up, if others follow.
    if (repeat > 0) times.erase(times.begin());
    answer.values(call.inputs).number<uint64_t>(times.size());
    for (const double time : times) answer.number(time);
    answer.send(answers);
  }
}

void trace_calls(Reader& order, int answers) {
  auto owned = std::make_unique<ETDumpGen>();
  ETDumpGen& tracer = *owned;
  const auto module = load(order, std::move(owned));
  const Call call(order);
  std::vector<TensorPtr> memory;
  load_method(*module, call.method, memory);
  for (auto left = order.number<uint64_t>(); left > 0; --left) execute(*module, call);
  const auto dump = tracer.get_etdump_data();
  Writer().number('v').text(static_cast<const char*>(dump.buf), dump.size).send(answers);
  std::free(dump.buf);
}

void answer(Reader& order, int answers) {
  try {
    switch (order.number<char>()) {
      case 'k':
        name_missing(order, answers);
        break;
      case 'l': {
        const auto module = load(order);
        require(module->load_method(order.text()), "loaded the method");
        break;
      }
      case 'r':
        call_methods(order, answers);
        break;
      case 't':
        trace_calls(order, answers);
        break;
      default:
        throw std::runtime_error("an order that it doesn't know");
    }
    Writer().number('.').send(answers);
  } catch (const std::exception& error) {
    Writer().number('e').text(error.what()).send(answers);
  }
}

}  // namespace
}  // namespace etdev

// Ends the process when nobody can read its answers any more, even in the middle of a call: a
// connection that broke leaves no program running.
static void end_with(int orders) {
  std::thread([orders] {
    pollfd input{orders, 0, 0};
    while (poll(&input, 1, -1) < 0 || !(input.revents & POLLHUP)) {
    }
    _exit(1);
  }).detach();
}

int main() {
  const int orders = dup(STDIN_FILENO);
  const int answers = dup(STDOUT_FILENO);
  // Libraries that print must not write into the answers, nor may they read the orders.
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  end_with(orders);
  executorch::runtime::runtime_init();
  if (const char* threads = std::getenv("OMP_NUM_THREADS")) {
    // ExecuTorch itself starts a thread for each fast processor.
    const auto count = std::strtoul(threads, nullptr, 10);
    if (count > 0) executorch::extension::threadpool::get_threadpool()->_unsafe_reset_threadpool(count);
  }
  while (auto order = etdev::Reader::next(orders)) etdev::answer(*order, answers);
  return 0;
}
