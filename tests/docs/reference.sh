#!/usr/bin/env bash
# The reference out of the docstrings: doxygen has nothing to warn of, and says nothing undocumented of what programs
# use most. Exit status 77: there is no doxygen.
#   reference.sh SOURCE OUT
set -euo pipefail
source=$1 out=$2
command -v doxygen >/dev/null || {
  echo "doxygen is not installed"
  exit 77
}
mkdir -p "$out"
cd "$source"

run_doxygen() {
  { cat docs/reference/Doxyfile && echo "OUTPUT_DIRECTORY = $out" && cat; } | doxygen -
}

# Markup that doxygen does not understand, and parameters that do not exist.
run_doxygen </dev/null

# What has no docstring: all types and functions of namespaces, and all functions of the classes that programs call.
# Members of the other ones say it by their names, or are documented at the concept that they model.
in_full='arena|array|allocator|residency|host_view|stream|error|trace|nvtx_marks|scratch|temporary_storage'
in_full+='|cublas_calls|cudnn_calls|cub_calls|thrust_calls|thrust_allocator|pmr_resource'
run_doxygen <<TEXT
WARN_IF_UNDOCUMENTED = YES
WARN_AS_ERROR = NO
WARN_LOGFILE = $out/undocumented.txt
GENERATE_HTML = NO
GENERATE_XML = YES
TEXT
needed=' Compound '
needed+='| \((function|enumeration)\) of namespace '
needed+='| \(function\) of file '
needed+="| \(function\) of class deepum::v0::(interop::)?($in_full) "
missing=$(grep 'is not documented' "$out/undocumented.txt" | grep -E "$needed" |
  grep -vE 'Member operator|get_property' || true)
if [[ -n $missing ]]; then
  echo "without a docstring:"
  echo "$missing"
  exit 1
fi

# What the first page names is in the reference, so that it is a link there.
for name in $(grep -oE 'deepum::v0::[a-z_:0-9]+(\(\))?' docs/reference/index.md); do
  grep -q ">$name</a>" "$out/html/index.html" || {
    echo "docs/reference/index.md names $name, which the reference does not have"
    exit 1
  }
done
echo "reference: $out/html/index.html"
