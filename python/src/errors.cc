#include "errors.h"

#include <new>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "gil.h"
#include "raised.h"
#include "shardwise/base/error.h"

namespace nb = nanobind;

namespace shardwise::python {

namespace {

constexpr const char* kOtherType = "an argument is of another type than is taken: see help()";

/// Maps names of options in the library's texts, for C++ and the command line, to Python's names.
constexpr std::pair<std::string_view, std::string_view> kNamesHere[] = {
    {"(Dataset::Options::cache, --cache DIR)", "(cache=)"},
    {"(Dataset::Options::cache)", "(cache=)"},
    {"(Dataset::Access::kRange, --access range)", "(access=\"range\")"},
    {"(Dataset::Access::kMap)", "(access=\"map\")"},
    {"(Dataset::Options::allow_part, --allow-part)", "(allow_part=True)"},
    {"(--cache-bypass-large)", "(ShardCache(bypass_large=True))"},
    {"Fetchers::Options::allow_pipe (--allow-pipe)", "ShardCache(allow_pipe=True)"},
    {"(ShardCache::Options::group_shared, --cache-group)", "(group_shared=True)"},
    {"(ShardCache::Options::read_only, --cache-read-only)", "(read_only=True)"},
    {"(Fetchers::Options::bearer_token_loopback, --bearer-token-loopback)",
     "(bearer_token_loopback=True)"},
    {"(Fetchers::Options::retry_for)", "(ShardCache(retry_for=))"},
    {", or be more patient (Fetchers::Options: connect_timeout, low_speed_time, retry_for)",
     ", or for longer (ShardCache(retry_for=))"},
    {"(SSL_CERT_FILE, Fetchers::Options::ca_file)", "(SSL_CERT_FILE)"},
    {"(Fetchers::S3Options::region or AWS_REGION)", "(AWS_REGION)"},
    {", or add a fetcher (Fetchers::add)", ""},
    {", or allow more (Query::Limits::scratch_bytes)", ""},
    {"; a debug audit says which", ""},
    {"(ShardWriter::Options::replace)", "(replace=True)"},
    {"(IndexCacheOptions::directory, --index-cache DIR)", "(index_directory=)"},
    {"(IndexCacheOptions::build_missing)", "(build=False)"},
    {"(IndexCacheOptions::build)", "(columns=)"},
    {"(Dataset::open)", "(shardwise.open())"},
    {"with Dataset::open", "with shardwise.open()"},
    {"--root DIR (Dataset::Options::root)", "root="},
    {"--root (Dataset::Options::root)", "root="},
    {"(Dataset::Options::root)", "(root=)"},
    {"--accept-times (Dataset::Options::accept_times)", "accept_times=True"},
    {"hashes (--hash)", "hashes (hashes=True)"},
    {"take columns::bytes", "take columns.bytes"},
    {"ImageDecoding::Scaling::kFast", "ImageDecoding(scaling=\"fast\")"},
    {"`shardwise index --on-bad skip`", "shardwise.index(on_bad=\"skip\")"},
    {"`shardwise index --on-no-field skip`", "shardwise.index(on_bad={\"no_field\": \"skip\"})"},
    {"`shardwise index --on-duplicate-field skip`",
     "shardwise.index(on_bad={\"duplicate_field\": \"skip\"})"},
    {"`shardwise index --on-repeated-key skip`",
     "shardwise.index(on_bad={\"repeated_key\": \"skip\"})"},
    {"`shardwise index --on-link resolve`", "shardwise.index(on_bad={\"link\": \"resolve\"})"},
    {"--accept-times (BuildOptions::accept_times)", "accept_times=True"},
    {"`shardwise index --drop-missing` (BuildOptions::drop_missing)",
     "shardwise.index(drop_missing=True)"},
    {"`shardwise index --on-link skip`", "shardwise.index(on_bad={\"link\": \"skip\"})"},
    {"(Fetchers::Options: moved, resolve, headers, netrc_file)",
     "(ShardCache: url_base, resolve, http_headers, netrc_file)"},
    {"Fetchers::Options::headers", "http_headers"},
    {"Fetchers::Options::moved", "url_base"},
    {"Fetchers::Options::retry_for", "retry_for"},
    {"Fetchers::Options::max_connections_per_host", "host_connections"},
    {"Fetchers::Options::max_connections_per_shard", "shard_connections"},
    {"run with `--allow-pipe`", "run with ShardCache(allow_pipe=True)"},
    {"`shardwise query INDEX .schema` shows the columns; `shardwise index --column FIELD` adds one",
     "Dataset.columns has their names; shardwise.index(columns=) adds one"},
    {"`shardwise index -o INDEX DESCRIPTOR`", "shardwise.index(index, descriptor)"},
    {"`shardwise index -o INDEX SOURCE`", "shardwise.index(index, source)"},
    {"`shardwise index --column FIELD`", "shardwise.index(columns=)"},
    {"`shardwise index --hash`", "shardwise.index(hashes=True)"},
    {"`shardwise index --part I/N`", "shardwise.index(part=(i, n))"},
    {"`shardwise ls` shows the keys", "Dataset.sample_keys() gives the keys"},
    {"`shardwise info` shows what fields there are",
     "Dataset.info.fields are those that there are"},
    {"`shardwise merge`", "shardwise.merge()"},
    // The rest: an index that must be made or updated.
    {"`shardwise index` again", "shardwise.update()"},
    {"after `shardwise index` if", "after shardwise.update() if"},
    {"again with `shardwise index`", "again with shardwise.index()"},
};

/// Returns the class of shardwise.errors with this code. A new reference; null with Python's error
/// set. Python itself imports and keeps the module.
PyObject* class_of(std::string_view code) {
  PyObject* const errors = PyImport_ImportModule("shardwise.errors");
  if (errors == nullptr) return nullptr;
  // Names of codes are literals, so they end with a NUL.
  PyObject* const type = PyObject_CallMethod(errors, "of_code", "s", code.data());
  Py_DECREF(errors);
  return type;
}

void set_error(const Error& error) noexcept {
  std::string text;
  try {
    text = with_names_here(error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    return;
  }
  call_python([&] {
    PyObject* const type = class_of(error_code_name(error.code()));
    if (type == nullptr) return;
    // Names in a text are escaped. Only messages of the system may not be ASCII.
    PyObject* const message =
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
    if (message != nullptr) PyErr_SetObject(type, message);
    Py_XDECREF(message);
    Py_DECREF(type);
  });
}

}  // namespace

std::string with_names_here(std::string text) {
  for (const auto& [there, here] : kNamesHere) {
    for (std::size_t at = 0; (at = text.find(there, at)) != text.npos; at += here.size()) {
      text.replace(at, there.size(), here);
    }
  }
  return text;
}

void translate_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const RaisedInPython& error) {
      error.restore();
    } catch (const Error& error) {
      set_error(error);
    } catch (const std::bad_cast&) {
      PyErr_SetString(PyExc_TypeError, kOtherType);
    }
  });
}

void throw_not_made(nb::handle object) {
  const auto type = nb::cast<std::string>(object.type().attr("__name__"));
  PyErr_SetString(PyExc_TypeError,
                  ("this " + type + " was not made: no __init__() of its class has run").c_str());
  nb::raise_python_error();
}

void set_error_of_exception() noexcept {
  try {
    throw;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const RaisedInPython& error) {
    error.restore();
  } catch (const Error& error) {
    set_error(error);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::bad_cast&) {
    PyErr_SetString(PyExc_TypeError, kOtherType);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "an unknown C++ exception");
  }
}

}  // namespace shardwise::python
