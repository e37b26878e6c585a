// The runtime half of NestedBackend: ExecuTorch's own runtime, on portable kernels. A payload has two
// programs of a partition, and the calls in which the second one runs.

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/extension/module/module.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>

#include <cstring>
#include <memory>
#include <vector>

namespace {

using namespace executorch::runtime;
using executorch::extension::BufferDataLoader;
using executorch::extension::Module;

// Written by nested.py, in the same order.
enum When : int64_t { kAlways, kSize, kAbove, kMultiple, kShrunk, kFromCall, kValue, kReset };

struct Header {
  int64_t when, number, input, dim, right_bytes, wrong_bytes;
};

struct Handle {
  Header header;
  std::vector<char> right_data, wrong_data;
  std::unique_ptr<Module> right, wrong;
  int64_t calls = 0, size = 0;
};

std::unique_ptr<Module> loaded(const std::vector<char>& data) {
  return std::make_unique<Module>(std::make_unique<BufferDataLoader>(data.data(), data.size()));
}

bool has(const EValue& value, int64_t number) {
  if (value.isInt()) return value.toInt() == number;
  const auto& tensor = value.toTensor();
  for (ssize_t i = 0; i < tensor.numel(); ++i)
    if (tensor.const_data_ptr<int64_t>()[i] == number) return true;
  return false;
}

bool is_zero(const EValue& value) {
  const auto& tensor = value.toTensor();
  for (ssize_t i = 0; i < tensor.numel(); ++i)
    if (tensor.const_data_ptr<float>()[i] != 0) return false;
  return true;
}

bool is_wrong(Handle& handle, const EValue& value) {
  const auto& [when, number, input, dim, right_bytes, wrong_bytes] = handle.header;
  const int64_t call = ++handle.calls, before = handle.size;
  if (dim >= 0) handle.size = value.toTensor().size(dim);
  switch (when) {
    case kSize: return handle.size == number;
    case kAbove: return handle.size > number;
    case kMultiple: return handle.size % number == 0;
    case kShrunk: return handle.size < before;
    case kFromCall: return call >= number;
    case kValue: return has(value, number);
    case kReset: return call > 1 && is_zero(value);
    default: return true;
  }
}

class NestedBackend final : public BackendInterface {
 public:
  bool is_available() const override { return true; }

  Result<DelegateHandle*> init(BackendInitContext&, FreeableBuffer* processed,
                               ArrayRef<CompileSpec>) const override {
    auto handle = std::make_unique<Handle>();
    const char* data = static_cast<const char*>(processed->data());
    std::memcpy(&handle->header, data, sizeof(Header));
    data += sizeof(Header);
    handle->right_data.assign(data, data + handle->header.right_bytes);
    data += handle->header.right_bytes;
    handle->wrong_data.assign(data, data + handle->header.wrong_bytes);
    handle->right = loaded(handle->right_data);
    handle->wrong = loaded(handle->wrong_data);
    return handle.release();
  }

  Error execute(BackendExecutionContext&, DelegateHandle* delegate,
                Span<EValue*> args) const override {
    auto& handle = *static_cast<Handle*>(delegate);
    const auto count = handle.right->method_meta("forward")->num_inputs();
    std::vector<EValue> inputs;
    for (size_t i = 0; i < count; ++i) inputs.push_back(*args[i]);
    const bool wrong = is_wrong(handle, inputs[handle.header.input]);
    const auto outputs = (wrong ? handle.wrong : handle.right)->execute("forward", inputs);
    if (!outputs.ok()) return outputs.error();
    for (size_t i = count; i < args.size(); ++i) {
      const auto& value = outputs.get()[i - count].toTensor();
      auto& target = args[i]->toTensor();
      const Error resized = resize_tensor(target, value.sizes());
      if (resized != Error::Ok) return resized;
      std::memcpy(target.mutable_data_ptr(), value.const_data_ptr(), value.nbytes());
    }
    return Error::Ok;
  }

  void destroy(DelegateHandle* delegate) const override { delete static_cast<Handle*>(delegate); }
};

NestedBackend backend;
[[maybe_unused]] const Error registered = register_backend({"NestedBackend", &backend});

}  // namespace
