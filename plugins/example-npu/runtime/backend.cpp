// The runtime half of ExampleNpuBackend. A real one hands the weights to its driver in init() and
// the tensors in execute(); this one computes on the CPU.

#include <executorch/runtime/backend/interface.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace {

using namespace executorch::runtime;

constexpr uint32_t kCores = 2, kLinear = 0;

struct Op {
  uint32_t code, source, target, columns, rows, has_bias;
  std::vector<float> weight, bias;
};

struct Handle {
  std::vector<uint32_t> sizes, inputs, outputs;
  std::vector<Op> ops;
};

// Reads a payload, and never beyond its end: it may come from anywhere.
struct Reader {
  const char* at;
  size_t left;
  bool ok = true;

  template <typename T>
  std::vector<T> many(uint64_t count) {
    if (!ok || count > left / sizeof(T)) {
      ok = false;
      return {};
    }
    std::vector<T> values(count);
    std::memcpy(values.data(), at, count * sizeof(T));
    at += count * sizeof(T);
    left -= count * sizeof(T);
    return values;
  }
  uint32_t one() {
    const auto value = many<uint32_t>(1);
    return ok ? value[0] : 0;
  }
};

bool read(Reader& reader, Handle& handle, uint32_t& core) {
  const auto magic = reader.many<char>(4);
  if (!reader.ok || std::memcmp(magic.data(), "NPU1", 4) != 0) return false;
  core = reader.one();
  handle.sizes = reader.many<uint32_t>(reader.one());
  handle.inputs = reader.many<uint32_t>(reader.one());
  handle.outputs = reader.many<uint32_t>(reader.one());
  const auto is_value = [&](uint32_t index) { return index < handle.sizes.size(); };
  for (uint32_t left = reader.one(); left > 0 && reader.ok; --left) {
    const auto head = reader.many<uint32_t>(6);
    if (!reader.ok) return false;
    Op op{head[0], head[1], head[2], head[3], head[4], head[5], {}, {}};
    if (!is_value(op.source) || !is_value(op.target) || op.columns == 0 || op.rows == 0 ||
        uint64_t{handle.sizes[op.source]} * op.rows !=
            uint64_t{handle.sizes[op.target]} * op.columns ||
        handle.sizes[op.source] % op.columns != 0)
      return false;
    if (op.code == kLinear) op.weight = reader.many<float>(uint64_t{op.rows} * op.columns);
    if (op.has_bias) op.bias = reader.many<float>(op.rows);
    handle.ops.push_back(std::move(op));
  }
  return reader.ok && reader.left == 0 &&
      std::all_of(handle.inputs.begin(), handle.inputs.end(), is_value) &&
      std::all_of(handle.outputs.begin(), handle.outputs.end(), is_value);
}

void compute(const Op& op, const std::vector<float>& source, std::vector<float>& target) {
  if (op.code != kLinear) {
    // Written so that NaN stays NaN, as in PyTorch.
    std::transform(source.begin(), source.end(), target.begin(),
                   [](float x) { return x < 0 ? 0 : x; });
    return;
  }
  for (size_t row = 0; row < source.size() / op.columns; ++row)
    for (size_t out = 0; out < op.rows; ++out) {
      float sum = op.has_bias ? op.bias[out] : 0;
      for (size_t k = 0; k < op.columns; ++k)
        sum += source[row * op.columns + k] * op.weight[out * op.columns + k];
      target[row * op.rows + out] = sum;
    }
}

class ExampleNpuBackend final : public BackendInterface {
 public:
  bool is_available() const override { return true; }

  Result<DelegateHandle*> init(BackendInitContext&, FreeableBuffer* processed,
                               ArrayRef<CompileSpec> specs) const override {
    auto handle = std::make_unique<Handle>();
    Reader reader{static_cast<const char*>(processed->data()), processed->size()};
    uint32_t core = kCores;
    if (!read(reader, *handle, core) || core >= kCores)
      return Error::DelegateInvalidCompatibility;
    // The same bytes that the compiler was given: `npu:1`.
    for (const auto& spec : specs)
      if (std::string(spec.key) == "etdev_device" &&
          std::string(static_cast<const char*>(spec.value.buffer), spec.value.nbytes) !=
              "npu:" + std::to_string(core))
        return Error::DelegateInvalidCompatibility;
    processed->Free();
    return handle.release();
  }

  Error execute(BackendExecutionContext&, DelegateHandle* delegate,
                Span<EValue*> args) const override {
    const auto& handle = *static_cast<const Handle*>(delegate);
    const size_t inputs = handle.inputs.size();
    if (args.size() != inputs + handle.outputs.size()) return Error::InvalidArgument;
    std::vector<std::vector<float>> values;
    for (const uint32_t size : handle.sizes) values.emplace_back(size);
    // The inputs come first, then the outputs, whose memory ExecuTorch has planned.
    for (size_t i = 0; i < args.size(); ++i) {
      const auto& value = values[i < inputs ? handle.inputs[i] : handle.outputs[i - inputs]];
      if (!args[i]->isTensor() ||
          args[i]->toTensor().nbytes() != value.size() * sizeof(float))
        return Error::InvalidArgument;
    }
    for (size_t i = 0; i < inputs; ++i)
      std::memcpy(values[handle.inputs[i]].data(), args[i]->toTensor().const_data_ptr(),
                  args[i]->toTensor().nbytes());
    for (const auto& op : handle.ops) compute(op, values[op.source], values[op.target]);
    for (size_t i = inputs; i < args.size(); ++i)
      std::memcpy(args[i]->toTensor().mutable_data_ptr(),
                  values[handle.outputs[i - inputs]].data(), args[i]->toTensor().nbytes());
    return Error::Ok;
  }

  void destroy(DelegateHandle* delegate) const override { delete static_cast<Handle*>(delegate); }
};

ExampleNpuBackend backend;
// When the library is loaded, under the name that the .pte has.
[[maybe_unused]] const Error registered = register_backend({"ExampleNpuBackend", &backend});

}  // namespace
