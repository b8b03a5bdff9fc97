#!/usr/bin/env bash
# From nothing to a trained network and its proofs: sets up, builds, draws images, packs them into
# shards, indexes those, and trains on two ranks.
#
#   tools/demo.sh [--small] [FOLDER]
#
#   --small   half of the images: shows that everything works here, and learns less
#   FOLDER    where the data go, with --small its folder small; demo-data beside this project by default
#
# Run it again, or after a stop, and it goes on with what is there. It writes to FOLDER and to
# build-release/, and removing both undoes all but the installed packages.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

train_images=20000
eval_images=2001 # odd, so that two ranks cannot share it evenly
least_accuracy=90
small=
if [[ ${1:-} == --small ]]; then
  train_images=10000 eval_images=1001 least_accuracy=50
  small=/small
  shift
fi
[[ ${1:-} != -* && $# -le 1 ]] || fail "usage: tools/demo.sh [--small] [FOLDER]"
data=${1:-$SHARDWISE_SOURCE_DIR/demo-data}$small
mkdir -p "$data"
data=$(cd "$data" && pwd)
programs=$SHARDWISE_SOURCE_DIR/build-release/bin

heading "1 of 6: setting up"
install_groups build
choose_compiler
have_libtorch || fail "$NO_LIBTORCH"
say "all packages are there"

heading "2 of 6: building Shardwise (build-release/)"
cd "$SHARDWISE_SOURCE_DIR"
cmake --preset release >"$data/configure.log" || {
  cat "$data/configure.log"
  fail "CMake cannot configure: see its messages above"
}
cmake --build --preset release --target shardwise_program shardwise-train make_shapes

make_data() {  # NAME COUNT SEED
  # Each step makes its result whole or not at all, so what is there is complete.
  [[ -d $data/images/$1 ]] || "$programs/make_shapes" --count "$2" --seed "$3" "$data/images/$1"
  [[ -f $data/shards/$1/classes.json ]] ||
    "$programs/shardwise" pack --images "$data/images/$1" --shuffle --seed "$3" --force \
      --max-samples 1000 -o "$data/shards/$1"
  "$programs/shardwise" index -o "$data/$1.idx" "$data/shards/$1"
}

heading "3 of 6: drawing images, packing them into shards, indexing: to train on"
mkdir -p "$data/images"
make_data train "$train_images" 1

heading "4 of 6: the same, to evaluate on"
make_data eval "$eval_images" 2

heading "5 of 6: what was indexed"
"$programs/shardwise" info "$data/train.idx"

ranks=2
[[ $("$programs/shardwise-train" --version) != *"one rank only"* ]] || ranks=1
heading "6 of 6: training for 2 epochs, ranks: $ranks"
"$programs/shardwise-train" --local-ranks "$ranks" --global-batch-size 64 --epochs 2 --train "$data/train.idx" \
  --eval "$data/eval.idx" --checkpoint "$data/model.pt" | tee "$data/train.log"

awk -v least="$least_accuracy" '$1 == "accuracy" { accuracy = $2 } END { exit !(accuracy >= least) }' \
  "$data/train.log" ||
  fail "the network learned less than it should: at least $least_accuracy % was expected"
