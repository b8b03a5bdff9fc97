#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/normal_path.h"
#include "base/text.h"
#include "base/url.h"
#include "blocking.h"
#include "errors.h"
#include "field_names.h"
#include "gil.h"
#include "objects.h"
#include "raised.h"
#include "shardwise/storage/shard_cache.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shardwise::python {

namespace {

/// Returns the name of an object's type, e.g. "None" or "int". Clears Python's error.
std::string type_of(PyObject* object) {
  if (object == Py_None) return "None";
  PyObject* const name = PyType_GetName(Py_TYPE(object));
  Py_ssize_t size = 0;
  const char* const text = name == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(name, &size);
  const std::string type =
      text == nullptr ? "another object" : std::string(text, static_cast<std::size_t>(size));
  Py_XDECREF(name);
  PyErr_Clear();
  return type;
}

/// Calls a resolve function. Returns false with Python's error set. Uses the C API, for the reason
/// given at call_with_progress().
/// @param found  set to the function's result if that is a str.
/// @param type   set to the name of the result's type.
bool call_for_url(PyObject* function, const std::string& url, std::optional<std::string>& found,
                  std::string& type) {
  PyObject* const text =
      PyUnicode_DecodeUTF8(url.data(), static_cast<Py_ssize_t>(url.size()), "surrogateescape");
  if (text == nullptr) return false;
  PyObject* const result = PyObject_CallFunctionObjArgs(function, text, nullptr);
  Py_DECREF(text);
  if (result == nullptr) return false;
  const bool is_text = PyUnicode_Check(result) != 0;
  if (!is_text) type = type_of(result);
  PyObject* const bytes =
      is_text ? PyUnicode_AsEncodedString(result, "utf-8", "surrogateescape") : nullptr;
  Py_DECREF(result);
  if (bytes != nullptr) {
    found.emplace(PyBytes_AsString(bytes), static_cast<std::size_t>(PyBytes_Size(bytes)));
    Py_DECREF(bytes);
  }
  return bytes != nullptr || !is_text;
}

/// Returns a resolver that calls a Python function from any thread.
std::function<std::string(const std::string&)> resolver_of(Kept function) {
  if (function == nullptr) return nullptr;
  return [kept = std::move(function)](const std::string& url) {
    const GilAcquired acquired;
    std::optional<std::string> found;
    std::string type;
    bool has_returned = false;
    call_python([&] { has_returned = call_for_url(kept.get(), url, found, type); });
    if (!has_returned) throw_raised();
    if (found) return *std::move(found);
    throw InvalidArgument("the function resolve= did not return a URL",
                          type + " for " + in_quotes(redacted_url(url)),
                          "return an absolute URL as a str, e.g. the URL that was given");
  };
}

/// Converts seconds. Returns a negative value, which the option refuses, for an invalid time.
std::chrono::milliseconds milliseconds_of(double seconds) {
  constexpr double kMost = 1e12;  // ms; above the option's limit
  const double ms = std::ceil(seconds * 1000.0);
  return std::chrono::milliseconds(ms >= 0.0 ? static_cast<std::int64_t>(std::min(ms, kMost)) : -1);
}

nb::dict stats(const CacheObject& self) {
  const ShardCache::Stats stats = self.cache->stats();
  nb::dict all;
  all["hits"] = stats.hits;
  all["misses"] = stats.misses;
  all["fetched"] = stats.fetched;
  all["fetched_bytes"] = stats.fetched_bytes;
  all["waits"] = stats.waits;
  all["evicted"] = stats.evicted;
  all["evicted_bytes"] = stats.evicted_bytes;
  all["wrong"] = stats.wrong;
  all["bypassed"] = stats.bypassed;
  return all;
}

CacheObject& held_by(PyObject* self) { return held_in<CacheObject>(self); }

/// Tells the garbage collector that this object refers to the resolve function, which may refer
/// back to the cache. Only allowed if no other object shares the cache, e.g. a dataset whose
/// threads may call the function.
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const CacheObject& object = held_by(self);
  const bool is_only_here = object.cache.use_count() == 1 &&
                            object.resolve.use_count() == object.num_resolve &&
                            object.cache->options().fetchers.use_count() == object.num_fetchers;
  if (is_only_here) Py_VISIT(object.resolve.get());
  return 0;
}

// No tp_clear: clearing the function's own references is enough to break a cycle, as for a Column.
PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {0, nullptr},
};

}  // namespace

void add_caches(nb::module_& module) {
  nb::class_<CacheObject>(
      module, "ShardCache", nb::type_slots(slots), nb::is_weak_referenceable(),
      "A directory with a byte budget for shards that cannot be read in place: remote and "
      "compressed ones. All processes of a machine share it, and each shard is fetched once.\n\n"
      "directory: is made if it does not exist.\n"
      "budget_bytes: maximum bytes of the shards in it.\n"
      "bypass_large: fetch a shard that is larger than the budget at each use, instead of "
      "failing.\n"
      "read_only: write nothing to the directory; a shard that is missing there is an error. "
      "Needed for the directory of another user; implied if this user cannot write to a directory "
      "that this user or root owns.\n"
      "group_shared: members of the directory's group read and write it. All of them set this.\n"
      "metrics_file: write the counts of this process to this file, in Prometheus' text format. A "
      "process that gets the cache by pickle writes none.\n"
      "allow_pipe: run the commands of ``pipe:`` URLs. Set it only for URLs that you wrote "
      "yourself.\n\n"
      "Options of fetches; index(), update() and verify() use them, too:\n\n"
      "http_headers: headers of each http and https request, each \"Name: value\".\n"
      "bearer_token_file: file with a token, read again for each shard, and sent over https "
      "only.\n"
      "bearer_token_loopback: send the token over http to this machine, too.\n"
      "netrc_file: file with users and passwords by host.\n"
      "ca_file: certificates of the authorities to trust, in PEM.\n"
      "host_connections: maximum transfers from one host at a time. 0 means: no limit.\n"
      "shard_connections: requests at a time for one large shard.\n"
      "retry_for: seconds for which a fetch is retried after a temporary failure or wrong content. "
      "0 means: one attempt.\n"
      "no_sign_request: read s3:// without keys.\n"
      "url_base: a dict; URLs that begin with a key are fetched from its value. Shards in the "
      "cache are found by the URLs of the index.\n"
      "resolve: a function from a URL to the URL to fetch it from, e.g. a signed one. Any thread "
      "calls it, before each fetch.\n\n"
      "Threads: any thread may use it, and a forked child.\n"
      "Pickling: it pickles with these options, including headers, and so does a dataset over it; "
      "but not with resolve.")
      .def(
          "__init__",
          [](CacheObject* self, const std::string& directory, std::uint64_t budget_bytes,
             bool bypass_large, bool read_only, bool group_shared, const std::string& metrics_file,
             bool allow_pipe, const std::vector<std::string>& http_headers,
             const std::string& bearer_token_file, bool bearer_token_loopback,
             const std::string& netrc_file, const std::string& ca_file, int host_connections,
             int shard_connections, double retry_for, bool no_sign_request,
             const nb::dict& url_base, nb::object resolve, const nb::kwargs& unknown) {
            refuse_unknown(nb::type<CacheObject>(), unknown);
            Fetchers::Options fetching;
            fetching.allow_pipe = allow_pipe;
            fetching.headers = http_headers;
            fetching.bearer_token_file = bearer_token_file;
            fetching.bearer_token_loopback = bearer_token_loopback;
            fetching.netrc_file = netrc_file;
            fetching.ca_file = ca_file;
            fetching.max_connections_per_host = host_connections;
            fetching.max_connections_per_shard = shard_connections;
            fetching.retry_for = milliseconds_of(retry_for);
            fetching.s3.anonymous = no_sign_request;
            for (const auto& [from, to] : url_base) {
              fetching.moved.push_back({nb::cast<std::string>(from), nb::cast<std::string>(to)});
            }
            nb::object given = nb::none();
            if (resolve.is_none()) {
              nb::list pairs;
              pairs.append(nb::make_tuple("bypass_large", bypass_large));
              pairs.append(nb::make_tuple("read_only", read_only));
              pairs.append(nb::make_tuple("group_shared", group_shared));
              pairs.append(nb::make_tuple("allow_pipe", allow_pipe));
              pairs.append(nb::make_tuple("http_headers", nb::tuple(nb::cast(http_headers))));
              pairs.append(nb::make_tuple("bearer_token_file", at_home(bearer_token_file)));
              pairs.append(nb::make_tuple("bearer_token_loopback", bearer_token_loopback));
              pairs.append(nb::make_tuple("netrc_file", at_home(netrc_file)));
              pairs.append(nb::make_tuple("ca_file", at_home(ca_file)));
              pairs.append(nb::make_tuple("host_connections", host_connections));
              pairs.append(nb::make_tuple("shard_connections", shard_connections));
              pairs.append(nb::make_tuple("retry_for", retry_for));
              pairs.append(nb::make_tuple("no_sign_request", no_sign_request));
              pairs.append(nb::make_tuple("url_base", nb::tuple(url_base.items())));
              given = nb::tuple(pairs);
            }
            const Kept kept = resolve.is_none() ? nullptr : keep(std::move(resolve));
            fetching.resolve = resolver_of(kept);
            const ShardCache::Options options{
                .directory = directory,
                .budget_bytes = budget_bytes,
                .bypass_large = bypass_large,
                .fetchers = std::make_shared<const Fetchers>(std::move(fetching)),
                .metrics_file = metrics_file,
                .read_only = read_only,
                .group_shared = group_shared};
            auto* const made = new (self) CacheObject{
                without_gil([&](const CancelToken&) { return ShardCache::open(options); }),
                std::move(given), kept};
            fetching.resolve = nullptr;
            made->num_resolve = kept.use_count() - 1;  // not counting `kept` itself
            made->num_fetchers = options.fetchers.use_count() - 1;
          },
          "directory"_a, "budget_bytes"_a = std::uint64_t{64} << 30, nb::kw_only(),
          "bypass_large"_a = false, "read_only"_a = false, "group_shared"_a = false,
          "metrics_file"_a = "", "allow_pipe"_a = false,
          "http_headers"_a = std::vector<std::string>(), "bearer_token_file"_a = "",
          "bearer_token_loopback"_a = false, "netrc_file"_a = "", "ca_file"_a = "",
          "host_connections"_a = 0, "shard_connections"_a = 4, "retry_for"_a = 900.0,
          "no_sign_request"_a = false, "url_base"_a = nb::dict(), "resolve"_a = nb::none(),
          "unknown"_a,
          nb::sig("def __init__(self, directory: str, budget_bytes: int = 68719476736, *, "
                  "bypass_large: bool = False, read_only: bool = False, group_shared: bool = "
                  "False, metrics_file: str = '', allow_pipe: bool = False, http_headers: "
                  "collections.abc.Sequence[str] = (), bearer_token_file: str = '', "
                  "bearer_token_loopback: bool = False, netrc_file: str = '', ca_file: str = '', "
                  "host_connections: int = 0, shard_connections: int = 4, retry_for: float = "
                  "900.0, no_sign_request: bool = False, url_base: dict[str, str] = {}, resolve: "
                  "collections.abc.Callable[[str], str] | None = None) -> None"))
      .def(
          "__reduce__",
          [](nb::handle_t<CacheObject> self) {
            return nb::module_::import_("shardwise.caches").attr("reference")(self);
          },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
      .def_prop_ro(
          "directory", [](const CacheObject& self) { return self.cache->options().directory; },
          "The directory.")
      .def_prop_ro(
          "budget_bytes",
          [](const CacheObject& self) { return self.cache->options().budget_bytes; },
          "Maximum bytes of the shards in it.")
      .def_prop_ro(
          "options", [](const CacheObject& self) { return self.given; },
          nb::sig("def options(self) -> tuple[tuple[str, typing.Any], ...] | None"),
          "Options with which another process can open the same cache, beside directory and "
          "budget: pairs of name and value. None if there is a `resolve` function.")
      .def_prop_ro(
          "used_bytes", [](const CacheObject& self) { return self.cache->used_bytes(); },
          "Bytes of all shards in it, including those being fetched.")
      .def("stats", &stats, nb::sig("def stats(self) -> dict[str, int]"),
           "Counts of the work of this process.\n\n"
           ">>> cache = shardwise.ShardCache(\"cache\", budget_bytes=1 << 30)\n"
           ">>> cache.stats()[\"fetched\"], cache.used_bytes\n"
           "(0, 0)")
      .def(
          "prune",
          [](const CacheObject& self, std::uint64_t max_bytes) {
            return without_gil(
                [&](const CancelToken&) { return self.cache->prune(max_bytes).bytes; });
          },
          "max_bytes"_a,
          "Removes the least recently used shards until the others take at most ``max_bytes``. "
          "Shards in use stay. Returns the removed bytes.")
      .def("__repr__", [](const CacheObject& self) {
        return "<shardwise.ShardCache " +
               nb::cast<std::string>(nb::repr(name_object(self.cache->options().directory))) +
               ": " + std::to_string(self.cache->used_bytes()) + " of " +
               std::to_string(self.cache->options().budget_bytes) + " bytes>";
      });
  module.def(
      "without_secrets",
      [](const NameArgument& place) { return name_object(without_secrets(place.bytes)); },
      "place"_a, nb::sig("def without_secrets(place: str) -> str"),
      "A path unchanged; a URL without user, password and the values of its query; of a command, "
      "only the program.");
}

}  // namespace shardwise::python
