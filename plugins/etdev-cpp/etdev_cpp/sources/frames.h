// Frames: what the runner reads from etdev and writes to it, each behind its length in 8 bytes.
//
// A frame is a sequence of numbers as this machine has them in memory, texts behind their length
// in 8 bytes, and values. A value opens with a letter: `n` for None, `b`, `i`, `d` and `s` for a
// bool, an int, a float and a text, `t` for a tensor, which has its dtype (a ScalarType), its rank,
// its sizes, the order of its dimensions in memory, and its bytes. etdev_cpp/frames.py is the
// other end.
#pragma once

#include <executorch/extension/tensor/tensor.h>
#include <executorch/runtime/core/evalue.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace etdev {

using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::extension::TensorPtr;
using executorch::runtime::EValue;

// Reads exactly `size` bytes; returns false at the end of the input.
inline bool read_all(int file, char* data, size_t size) {
  while (size > 0) {
    const ssize_t count = read(file, data, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    data += count;
    size -= static_cast<size_t>(count);
  }
  return true;
}

// Writes all bytes; a reader that is gone ends this process.
inline void write_all(int file, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t count = write(file, data, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) _exit(1);
    data += count;
    size -= static_cast<size_t>(count);
  }
}

// Parses a frame.
class Reader {
 public:
  explicit Reader(std::string frame) : frame_(std::move(frame)) {}

  // Returns the next frame of a file; nothing at its end.
  static std::optional<Reader> next(int file) {
    uint64_t size = 0;
    if (!read_all(file, reinterpret_cast<char*>(&size), sizeof size)) return std::nullopt;
    std::string frame(size, '\0');
    if (!read_all(file, frame.data(), size)) return std::nullopt;
    return Reader(std::move(frame));
  }

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }

  std::string text() {
    const auto size = number<uint64_t>();
    return std::string(take(size), size);
  }

  std::vector<std::string> texts() {
    std::vector<std::string> all(number<uint64_t>());
    for (auto& one : all) one = text();
    return all;
  }

  // Reads a value; a tensor is kept in `held` as long as it is used.
  EValue value(std::vector<TensorPtr>& held) {
    switch (const char kind = number<char>()) {
      case 'n':
        return EValue();
      case 'b':
        return EValue(number<char>() != 0);
      case 'i':
        return EValue(number<int64_t>());
      case 'd':
        return EValue(number<double>());
      case 't':
        held.push_back(tensor());
        return EValue(*held.back());
      default:
        throw std::runtime_error(std::string("a value of the kind ") + kind + " can't be an input");
    }
  }

 private:
  TensorPtr tensor() {
    const auto dtype = static_cast<ScalarType>(number<int8_t>());
    const auto rank = number<uint8_t>();
    std::vector<executorch::aten::SizesType> sizes(rank);
    for (auto& size : sizes) size = static_cast<executorch::aten::SizesType>(number<int64_t>());
    std::vector<executorch::aten::DimOrderType> order(rank);
    for (auto& dimension : order) dimension = number<uint8_t>();
    const auto size = number<uint64_t>();
    const char* bytes = take(size);
    // ExecuTorch refuses the null pointer of an empty vector without memory.
    std::vector<uint8_t> data;
    data.reserve(size + 1);
    data.assign(bytes, bytes + size);
    return executorch::extension::make_tensor_ptr(
        std::move(sizes), std::move(data), std::move(order), {}, dtype);
  }

  const char* take(uint64_t size) {
    if (size > frame_.size() - place_) throw std::runtime_error("the frame ends early");
    place_ += size;
    return frame_.data() + place_ - size;
  }

  std::string frame_;
  size_t place_ = 0;
};

// Builds a frame.
class Writer {
 public:
  template <typename T>
  Writer& number(T value) {
    frame_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }

  Writer& text(const char* data, size_t size) {
    number<uint64_t>(size);
    frame_.append(data, size);
    return *this;
  }

  Writer& text(const std::string& value) {
    return text(value.data(), value.size());
  }

  Writer& texts(const std::vector<std::string>& all) {
    number<uint64_t>(all.size());
    for (const auto& one : all) text(one);
    return *this;
  }

  Writer& values(const std::vector<EValue>& all) {
    number<uint64_t>(all.size());
    for (const auto& one : all) value(one);
    return *this;
  }

  void send(int file) const {
    const uint64_t size = frame_.size();
    write_all(file, reinterpret_cast<const char*>(&size), sizeof size);
    write_all(file, frame_.data(), frame_.size());
  }

 private:
  void value(const EValue& value) {
    if (value.isNone()) {
      number('n');
    } else if (value.isBool()) {
      number('b').number<char>(value.toBool());
    } else if (value.isInt()) {
      number('i').number<int64_t>(value.toInt());
    } else if (value.isDouble()) {
      number('d').number<double>(value.toDouble());
    } else if (value.isString()) {
      const auto string = value.toString();
      number('s').text(string.data(), string.size());
    } else if (value.isTensor()) {
      tensor(value.toTensor());
    } else {
      throw std::runtime_error("an output is neither a tensor, a number nor a text");
    }
  }

  void tensor(const Tensor& value) {
    if (value.nbytes() > 0 && value.const_data_ptr() == nullptr) {
      throw std::runtime_error("an output has no memory");
    }
    number('t').number(static_cast<int8_t>(value.scalar_type()));
    number(static_cast<uint8_t>(value.dim()));
    for (const auto size : value.sizes()) number<int64_t>(size);
    for (const auto dimension : value.dim_order()) number<uint8_t>(dimension);
    text(static_cast<const char*>(value.const_data_ptr()), value.nbytes());
  }

  std::string frame_;
};

}  // namespace etdev
